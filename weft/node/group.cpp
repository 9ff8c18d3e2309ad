#include "weft/node/group.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>

#include "weft/mpi/error.h"
#include "weft/node/cross_memory.h"
#include "weft/node/options.h"

namespace weft::node {
namespace {

constexpr std::size_t kAlignment = 128;  // processors fetch pairs of cache lines

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::size_t stride_for(int ranks) {
  return aligned(sizeof(Post) + static_cast<std::size_t>(Group::capacity()) +
                 static_cast<std::size_t>(ranks) * sizeof(Exposure));
}

// Collective. Returns whether all ranks succeeded. If not, the first rank that failed prints its reason, once per
// process and consequence.
bool all_succeeded(mpi::CommView comm, const std::string& failure, const char* consequence,
                   std::atomic<bool>& printed) {
  const int mine = failure.empty() ? comm.size() : comm.rank();
  int first = 0;
  mpi::check(MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm.handle()), "MPI_Allreduce", comm.handle());
  if (first == comm.size()) return true;
  if (first == comm.rank() && !printed.exchange(true)) {
    std::fprintf(stderr, "weft: rank %d: %s; %s\n", comm.rank(), failure.c_str(), consequence);
    std::fflush(stderr);
  }
  return false;
}

// The group is an attribute of its MPI communicator, which MPI deletes with the communicator.
using Attribute = std::shared_ptr<Group>;

std::atomic<std::uint64_t> g_deleted{0};  // the number of deleted attributes

int delete_attribute(MPI_Comm /*comm*/, int /*key*/, void* value, void* /*extra*/) {
  ++g_deleted;
  delete static_cast<Attribute*>(value);
  return MPI_SUCCESS;
}

// The last attribute that a thread used: MPI's own look-up takes a tenth of a small collective. A deletion makes all
// entries invalid, because MPI may reuse the handle.
struct LastAttribute {
  MPI_Comm comm = MPI_COMM_NULL;
  std::uint64_t deleted = 0;
  const Attribute* attribute = nullptr;
};
thread_local LastAttribute t_last;

int attribute_key() {
  static const int key = [] {
    int created = MPI_KEYVAL_INVALID;
    mpi::check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &delete_attribute, &created, nullptr),
               "MPI_Comm_create_keyval");
    return created;
  }();
  return key;
}

std::string describe(int error) { return std::generic_category().message(error); }

}  // namespace

const std::shared_ptr<Group>& Group::of(mpi::CommView comm) {
  static const std::shared_ptr<Group> none;
  if (comm.size() == 1) return none;
  const std::uint64_t deleted = g_deleted.load(std::memory_order_acquire);
  if (t_last.comm != comm.handle() || t_last.deleted != deleted || t_last.attribute == nullptr) {
    t_last = {comm.handle(), deleted, &find_or_create(comm)};
  }
  return *t_last.attribute;
}

const std::shared_ptr<Group>& Group::find_or_create(mpi::CommView comm) {
  void* stored = nullptr;
  int found = 0;
  mpi::check(MPI_Comm_get_attr(comm.handle(), attribute_key(), &stored, &found), "MPI_Comm_get_attr", comm.handle());
  if (found != 0) return *static_cast<Attribute*>(stored);
  auto group = std::make_unique<Attribute>();
  const mpi::UniqueComm node = comm.split_shared();
  if (node.size() == comm.size()) {
    std::shared_ptr<Group> made(new Group(node));
    if (made->share_segment(node)) {
      made->probe_cross_memory(node);
      *group = std::move(made);
    }
  }
  mpi::check(MPI_Comm_set_attr(comm.handle(), attribute_key(), group.get()), "MPI_Comm_set_attr", comm.handle());
  return *group.release();
}

Group::Group(mpi::CommView node)
    : rank_(node.rank()),
      size_(node.size()),
      stride_(stride_for(size_)),
      processes_(static_cast<std::size_t>(size_)),
      peers_(node),
      known_completed_(static_cast<std::size_t>(size_)) {
  exchange_processes(node);
  count_cores(node);
}

void Group::exchange_processes(mpi::CommView node) {
  const std::int64_t mine = getpid();
  mpi::check(MPI_Allgather(&mine, 1, MPI_INT64_T, processes_.data(), 1, MPI_INT64_T, node.handle()), "MPI_Allgather",
             node.handle());
}

// The launcher may bind every rank to other cores.
void Group::count_cores(mpi::CommView node) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) CPU_SET(0, &cores);
  mpi::check(MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof cores, MPI_BYTE, MPI_BOR, node.handle()), "MPI_Allreduce",
             node.handle());
  crowded_ = CPU_COUNT(&cores) < size_;
}

bool Group::share_segment(mpi::CommView node) {
  static std::atomic<bool> printed = false;
  constexpr const char* kConsequence = "the ranks of this node cannot share memory, so their collectives use MPI";
  std::string failure;
  SegmentHandle handle;
  const auto attempt = [&](const auto& step) {
    try {
      if (!options().segment) throw std::runtime_error("shared memory is disabled (WEFT_NODE=0)");
      step();
    } catch (const std::exception& error) {
      failure = error.what();
    }
  };
  if (rank_ == 0) {
    attempt([&] {
      segment_ = Segment::create(kSlots * static_cast<std::size_t>(size_) * stride_);
      handle = segment_.handle();
    });
  }
  mpi::check(MPI_Bcast(&handle, sizeof handle, MPI_BYTE, 0, node.handle()), "MPI_Bcast", node.handle());
  if (rank_ != 0 && handle.descriptor >= 0) attempt([&] { segment_ = Segment::open(handle); });
  const bool shared = all_succeeded(node, failure, kConsequence, printed);
  segment_.forget();
  return shared;
}

// Reads and writes a word of every other rank. A wrong value means that the process id belongs to another process.
void Group::probe_cross_memory(mpi::CommView node) {
  static std::atomic<bool> printed = false;
  constexpr const char* kConsequence =
      "the ranks of this node cannot access each other's memory, so large messages use MPI";
  permit_access();
  std::vector<std::uint64_t> words(static_cast<std::size_t>(size_), 0);
  const auto value = [](int writer, int reader) {
    return std::uint64_t{0x77656674} << 32U | unsigned(writer * 4096 + reader);
  };
  words[static_cast<std::size_t>(rank_)] = value(rank_, rank_);
  for (int peer = 0; peer < size_; ++peer) {
    exposures(0, rank_)[peer].in = reinterpret_cast<std::uint64_t>(words.data());
  }
  node.barrier();
  std::string failure;
  if (!options().cross_memory) failure = "cross-memory attach is disabled (WEFT_CROSS_MEMORY=0)";
  for (int peer = 0; peer < size_ && failure.empty(); ++peer) {
    if (peer == rank_) continue;
    const std::int64_t process = processes_[static_cast<std::size_t>(peer)];
    const std::uint64_t remote = exposures(0, peer)[rank_].in;
    std::uint64_t word = 0;
    const std::uint64_t mine = value(rank_, peer);
    int error = read_memory(process, remote + static_cast<std::uint64_t>(peer) * sizeof word, &word, sizeof word);
    if (error == 0 && word != value(peer, peer)) error = ESRCH;
    if (error == 0) {
      error = write_memory(process, remote + static_cast<std::uint64_t>(rank_) * sizeof mine, &mine, sizeof mine);
    }
    if (error != 0) failure = "process_vm_readv on process " + std::to_string(process) + " failed: " + describe(error);
  }
  if (!all_succeeded(node, failure, kConsequence, printed)) return;
  for (int peer = 0; peer < size_ && failure.empty(); ++peer) {
    if (words[static_cast<std::size_t>(peer)] != value(peer, rank_)) failure = "process_vm_writev wrote no data";
  }
  cross_memory_ = all_succeeded(node, failure, kConsequence, printed);
}

std::uint64_t Group::next_operation() {
  if (failed_) {
    throw mpi::MpiError("weft.MpiError: an earlier collective of this communicator did not finish; create a new one");
  }
  const std::uint64_t next = operations_.load(std::memory_order_relaxed) + 1;
  operations_.store(next, std::memory_order_relaxed);
  return next;
}

bool Group::slot_free(std::uint64_t operation) const noexcept {
  if (operation <= kSlots) return true;
  const std::uint64_t previous = operation - kSlots;
  for (int rank = 0; rank < size_; ++rank) {
    if (known_completed_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire) >= previous) continue;
    if (post(operation, rank).finished.load(std::memory_order_acquire) < previous) return false;
  }
  return true;
}

void Group::set_posted(std::uint64_t operation, std::uint64_t fingerprint) noexcept {
  Post& mine = post(operation, rank_);
  mine.fingerprint = fingerprint;
  mine.completed = completed_.load(std::memory_order_acquire);
  mine.posted.store(operation, std::memory_order_release);
}

bool Group::has_posted(std::uint64_t operation, int rank) noexcept {
  const Post& theirs = post(operation, rank);
  if (theirs.posted.load(std::memory_order_acquire) != operation) return false;
  auto& known = known_completed_[static_cast<std::size_t>(rank)];
  if (known.load(std::memory_order_relaxed) < theirs.completed) {
    known.store(theirs.completed, std::memory_order_release);  // a race with a smaller bound is harmless
  }
  return true;
}

// Operations may finish in any order, on several threads. The flag comes last: an atomic exchange after it would wait
// until the other ranks have lost the cache line.
void Group::set_finished(std::uint64_t operation) noexcept {
  last_finished_[operation % kSlots].store(operation, std::memory_order_release);
  std::uint64_t completed = completed_.load(std::memory_order_acquire);
  while (last_finished_[(completed + 1) % kSlots].load(std::memory_order_acquire) == completed + 1) {
    if (completed_.compare_exchange_weak(completed, completed + 1)) ++completed;
  }
  post(operation, rank_).finished.store(operation, std::memory_order_release);
}

std::byte* Group::post_data(std::uint64_t operation, int rank) const noexcept {
  const std::uint64_t index = operation % kSlots * static_cast<std::uint64_t>(size_) + static_cast<std::uint64_t>(rank);
  return segment_.data() + index * stride_;
}

Post& Group::post(std::uint64_t operation, int rank) const noexcept {
  return *reinterpret_cast<Post*>(post_data(operation, rank));
}

std::byte* Group::area(std::uint64_t operation, int rank) const noexcept {
  return post_data(operation, rank) + sizeof(Post);
}

Exposure* Group::exposures(std::uint64_t operation, int rank) const noexcept {
  return reinterpret_cast<Exposure*>(area(operation, rank) + capacity());
}

void Group::check_transfer(int error, int rank, const char* call) const {
  if (error == 0) return;
  if (error == ESRCH) throw mpi::PeerLost(rank, "its process has ended", /*terminated=*/true);
  throw mpi::MpiError(std::string("weft.MpiError: ") + call + " on the memory of rank " + std::to_string(rank) +
                      " failed: " + describe(error) + "; WEFT_CROSS_MEMORY=0 makes large messages use MPI");
}

void Group::read(int rank, std::uint64_t remote, void* local, std::int64_t bytes) const {
  check_transfer(read_memory(processes_[static_cast<std::size_t>(rank)], remote, local, bytes), rank,
                 "process_vm_readv");
}

void Group::write(int rank, std::uint64_t remote, const void* local, std::int64_t bytes) const {
  check_transfer(write_memory(processes_[static_cast<std::size_t>(rank)], remote, local, bytes), rank,
                 "process_vm_writev");
}

}  // namespace weft::node
