// Group: the ranks of a communicator that share memory, with their shared segment.
//
// The segment has a few slots, which consecutive operations use in turn. A slot has one post per rank: flags, addresses
// and an area for data. Only its rank writes a post. An operation takes these steps on every rank:
//   1. When all ranks have finished the previous operation of the slot, the rank fills its post and sets `posted`.
//   2. It waits for the posts of the ranks whose data it needs, and copies or reduces.
//   3. It sets `finished`. If other ranks access its own memory, it waits until they have finished, too.
// All flags hold the number of the operation, so nothing has to be reset.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/mpi/comm.h"
#include "weft/mpi/peers.h"
#include "weft/node/segment.h"

namespace weft::node {

// Flags of one rank in one slot. They have their own cache line, which the rank's data follows.
inline constexpr std::int64_t kTinyBytes = 24;
struct alignas(64) Post {
  std::atomic<std::uint64_t> posted;       // the data and addresses of this operation are complete
  std::atomic<std::uint64_t> reduced;      // the rank's part of the result is complete
  std::atomic<std::uint64_t> finished;     // the rank does not access the slot or other ranks' memory any more
  std::uint64_t fingerprint;               // must be equal on all ranks
  std::uint64_t completed;                 // when posting, the rank had finished all operations up to this one
  std::array<std::byte, kTinyBytes> tiny;  // data of this size share the cache line with the flags
};
static_assert(sizeof(Post) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

// Memory of a rank that another rank accesses.
struct Exposure {
  std::uint64_t in;   // address of the input
  std::uint64_t out;  // address of the output, for reductions
  std::int64_t bytes;
};

class Group {
 public:
  // Returns the group of a communicator whose ranks all share memory; null for other communicators. Collective at the
  // first call, which creates the group and stores it with the communicator. If the system does not permit shared
  // memory, prints a message once and returns null on all ranks. The reference is valid as long as the communicator.
  [[nodiscard]] static const std::shared_ptr<Group>& of(mpi::CommView comm);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  // Whether ranks may access each other's memory; equal on all ranks.
  [[nodiscard]] bool cross_memory() const noexcept { return cross_memory_; }
  // Whether the ranks outnumber their cores, so that a waiting rank must yield at once.
  [[nodiscard]] bool crowded() const noexcept { return crowded_; }
  // Bytes of the data area of a post.
  [[nodiscard]] static constexpr std::int64_t capacity() noexcept { return std::int64_t{256} << 10; }

  // The number of the next operation. All ranks must start the same operations in the same order, one at a time.
  // Throws mpi::MpiError after an operation that did not finish.
  [[nodiscard]] std::uint64_t next_operation();
  // Called if an operation does not finish: its slot stays in use.
  void mark_failed() noexcept { failed_ = true; }

  // Whether all ranks have finished the previous operation of the slot.
  [[nodiscard]] bool slot_free(std::uint64_t operation) const noexcept;
  // Publishes this rank's post.
  void set_posted(std::uint64_t operation, std::uint64_t fingerprint) noexcept;
  // Whether `rank` has published its post.
  [[nodiscard]] bool has_posted(std::uint64_t operation, int rank) noexcept;
  void set_finished(std::uint64_t operation) noexcept;
  [[nodiscard]] Post& post(std::uint64_t operation, int rank) const noexcept;
  [[nodiscard]] std::byte* area(std::uint64_t operation, int rank) const noexcept;
  // The memory that `rank` exposes to each rank.
  [[nodiscard]] Exposure* exposures(std::uint64_t operation, int rank) const noexcept;

  // Copies between this process and another rank. Throws mpi::PeerLost if that rank's process has ended, and
  // mpi::MpiError for other errors.
  void read(int rank, std::uint64_t remote, void* local, std::int64_t bytes) const;
  void write(int rank, std::uint64_t remote, const void* local, std::int64_t bytes) const;
  // Throws mpi::PeerLost if the process of a rank has ended.
  void require_alive() const { peers_.require_alive(); }

 private:
  // More slots let more operations be in flight; fewer ones keep the areas in the cache.
  static constexpr std::uint64_t kSlots = 4;

  explicit Group(mpi::CommView node);
  [[nodiscard]] static const std::shared_ptr<Group>& find_or_create(mpi::CommView comm);
  void exchange_processes(mpi::CommView node);
  void count_cores(mpi::CommView node);
  [[nodiscard]] bool share_segment(mpi::CommView node);
  void probe_cross_memory(mpi::CommView node);
  [[nodiscard]] std::byte* post_data(std::uint64_t operation, int rank) const noexcept;
  void check_transfer(int error, int rank, const char* call) const;

  int rank_;
  int size_;
  bool crowded_ = false;
  bool cross_memory_ = false;
  std::size_t stride_;  // bytes of a post with its area and exposures
  Segment segment_;
  std::vector<std::int64_t> processes_;
  mpi::Peers peers_;
  std::atomic<std::uint64_t> operations_{0};
  // This process finished these operations last, by slot, and all operations up to `completed_`.
  std::array<std::atomic<std::uint64_t>, kSlots> last_finished_{};
  std::atomic<std::uint64_t> completed_{0};
  // By rank: a lower bound of its `completed`, from the last post that this process read. It saves cache misses.
  std::vector<std::atomic<std::uint64_t>> known_completed_;
  std::atomic<bool> failed_ = false;
};

}  // namespace weft::node
