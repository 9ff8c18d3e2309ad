#include "weft/mpi/direct_reduce.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <list>
#include <map>
#include <mutex>

#include "weft/mpi/chunks.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

// Bytes per rank and chunk. Larger blocks do not fit the cache; smaller ones need more messages.
constexpr std::int64_t kBlockBytes = std::int64_t{256} << 10;
constexpr std::size_t kChunksInFlight = 3;

std::int64_t block_elements(Datatype type) { return std::min(kBlockBytes / size_of(type), options().max_count); }

std::int64_t chunks_for(std::int64_t elements, std::int64_t per_chunk) {
  return (elements + per_chunk - 1) / per_chunk;
}

// Reuses scratch memory, which is needed in a few sizes only: new pages would cost more than the transfer.
class ScratchPool {
 public:
  static std::shared_ptr<std::byte[]> take(std::size_t bytes) {
    auto& pool = instance();
    const std::size_t size = std::bit_ceil(bytes);
    std::unique_ptr<std::byte[]> memory;
    {
      const std::lock_guard lock(pool.mutex_);
      auto& free = pool.free_[size];
      if (!free.empty()) {
        memory = std::move(free.back());
        free.pop_back();
        pool.idle_bytes_ -= size;
      }
    }
    if (memory == nullptr) memory = std::make_unique_for_overwrite<std::byte[]>(size);
    return {memory.release(), [size](std::byte* returned) { instance().give_back(returned, size); }};
  }

 private:
  static ScratchPool& instance() {
    static auto* pool = new ScratchPool();  // never destroyed: abandoned requests may return memory at any time
    return *pool;
  }
  void give_back(std::byte* memory, std::size_t size) {
    constexpr std::size_t kMostIdleBytes = std::size_t{64} << 20;
    std::unique_ptr<std::byte[]> owner(memory);
    const std::lock_guard lock(mutex_);
    if (idle_bytes_ + size > kMostIdleBytes) return;
    idle_bytes_ += size;
    free_[size].push_back(std::move(owner));
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::unique_ptr<std::byte[]>>> free_;
  std::size_t idle_bytes_ = 0;
};

struct Element {
  Datatype type;
  ReduceOp op;
  [[nodiscard]] std::int64_t size() const { return size_of(type); }
  [[nodiscard]] MPI_Datatype handle() const { return handle_of(type); }
};

// Adds contributions to a block. Half precision is accumulated in float32 and rounded once, by finish().
class Accumulator {
 public:
  Accumulator(void* block, int count, Element element) : block_(block), count_(count), element_(element) {
    if (!accumulates_in_float32(element.op, element.type)) return;
    wide_ = ScratchPool::take(2 * static_cast<std::size_t>(count) * sizeof(float));
    widen(block, element.type, count, sum());
  }

  void add(const void* contribution) {
    if (wide_ == nullptr) return reduce(contribution, block_, element_.type);
    widen(contribution, element_.type, count_, next());
    reduce(next(), sum(), Datatype::kFloat32);
  }
  void finish() {
    if (wide_ != nullptr) narrow(sum(), count_, element_.type, block_);
  }

 private:
  void reduce(const void* from, void* to, Datatype type) const {
    check(MPI_Reduce_local(from, to, count_, handle_of(type), handle_of(element_.op, type)), "MPI_Reduce_local");
  }
  [[nodiscard]] float* sum() const { return reinterpret_cast<float*>(wide_.get()); }
  [[nodiscard]] float* next() const { return sum() + count_; }

  void* block_;
  int count_;
  Element element_;
  std::shared_ptr<std::byte[]> wide_;  // the sum and one contribution in float32; null for other types
};

// This rank's block of one chunk: receives the contributions of the other ranks and adds them, next rank first.
class BlockReduction {
 public:
  BlockReduction(void* own, std::int64_t count, Element element, CommView comm, int tag)
      : total_(own, static_cast<int>(count), element), count_(static_cast<int>(count)), element_(element) {
    if (count == 0) return;
    const auto peers = static_cast<std::size_t>(comm.size() - 1);
    scratch_ = ScratchPool::take(peers * static_cast<std::size_t>(count * element.size()));
    arriving_.resize(peers);
    for (int k = 1; k < comm.size(); ++k) {
      Request& request = arriving_[static_cast<std::size_t>(k - 1)] = Request(scratch_);
      const int source = (comm.rank() + k) % comm.size();
      check(MPI_Irecv(contribution(k - 1), count_, element.handle(), source, tag, comm.handle(), request.add()),
            "MPI_Irecv", comm.handle());
    }
  }

  [[nodiscard]] bool advance() {
    while (added_ < arriving_.size()) {
      if (!arriving_[added_].test()) return false;
      total_.add(contribution(static_cast<std::int64_t>(added_)));
      if (++added_ == arriving_.size()) total_.finish();
    }
    return true;
  }

 private:
  void* contribution(std::int64_t k) { return at(scratch_.get(), k * count_, element_.size()); }

  Accumulator total_;
  int count_;
  Element element_;
  std::shared_ptr<std::byte[]> scratch_;
  std::vector<Request> arriving_;
  std::size_t added_ = 0;
};

struct Span {
  void* data;
  std::int64_t count;
};

// One chunk of an all-reduce: every rank reduces its block, then sends the result to all ranks.
class AllReduceChunk {
 public:
  AllReduceChunk(std::byte* data, std::int64_t count, Element element, CommView comm, int tag,
                 const std::shared_ptr<void>& keep)
      : data_(data),
        count_(count),
        element_(element),
        comm_(comm),
        tag_(tag),
        reduction_(mine().data, mine().count, element, comm, tag),
        contributions_(keep),
        results_(keep) {
    for_others([&](int peer) { send(block(peer), peer, contributions_); });
  }

  [[nodiscard]] bool advance() {
    if (!reduced_) {
      if (!reduction_.advance()) return false;
      reduced_ = true;
      for_others([&](int peer) { send(mine(), peer, results_); });
    }
    if (!gathering_) {
      // The result may overwrite a block only after its contribution was sent.
      if (!contributions_.test()) return false;
      gathering_ = true;
      for_others([&](int peer) { receive(block(peer), peer, results_); });
    }
    return results_.test();
  }

 private:
  [[nodiscard]] Span block(int rank) const {
    const std::int64_t first = count_ * rank / comm_.size();
    const std::int64_t last = count_ * (rank + 1) / comm_.size();
    return {at(static_cast<void*>(data_), first, element_.size()), last - first};
  }
  [[nodiscard]] Span mine() const { return block(comm_.rank()); }

  template <class Visit>
  void for_others(Visit&& visit) const {
    for (int k = 1; k < comm_.size(); ++k) visit((comm_.rank() + k) % comm_.size());
  }
  void send(Span span, int peer, Request& request) const {
    if (span.count == 0) return;
    check(MPI_Isend(span.data, static_cast<int>(span.count), element_.handle(), peer, tag_, comm_.handle(),
                    request.add()),
          "MPI_Isend", comm_.handle());
  }
  void receive(Span span, int peer, Request& request) const {
    if (span.count == 0) return;
    check(MPI_Irecv(span.data, static_cast<int>(span.count), element_.handle(), peer, tag_, comm_.handle(),
                    request.add()),
          "MPI_Irecv", comm_.handle());
  }

  std::byte* data_;
  std::int64_t count_;
  Element element_;
  CommView comm_;
  int tag_;
  BlockReduction reduction_;
  Request contributions_;
  Request results_;
  bool reduced_ = false;
  bool gathering_ = false;
};

// Runs chunks 0, 1, ... with a few of them in flight.
template <class Chunk, class Start>
class Pipeline final : public Operation {
 public:
  Pipeline(std::int64_t chunks, Start start) : chunks_(chunks), start_(std::move(start)) { fill(); }

  [[nodiscard]] bool advance() override {
    std::erase_if(running_, [](Chunk& chunk) { return chunk.advance(); });
    fill();
    return running_.empty();
  }

 private:
  void fill() {
    while (running_.size() < kChunksInFlight && started_ < chunks_) start_(running_, started_++);
  }

  std::int64_t chunks_;
  Start start_;
  std::int64_t started_ = 0;
  std::list<Chunk> running_;  // a list, because chunks hold pointers into themselves
};

template <class Chunk, class Start>
std::unique_ptr<Operation> pipeline(std::int64_t chunks, Start start) {
  return std::make_unique<Pipeline<Chunk, Start>>(chunks, std::move(start));
}

struct ReduceScatterChunk {
  BlockReduction reduction;
  Request contributions;
  [[nodiscard]] bool advance() { return reduction.advance() && contributions.test(); }
};

}  // namespace

std::unique_ptr<Operation> direct_all_reduce(void* data, std::int64_t count, Datatype type, ReduceOp op, CommView comm,
                                             TagSequence& tags, std::shared_ptr<void> keep) {
  if (comm.size() == 1) count = 0;
  const Element element{type, op};
  const std::int64_t per_chunk = block_elements(type) * comm.size();
  const std::int64_t chunks = chunks_for(count, per_chunk);
  const std::int64_t first_tag = tags.take(chunks);
  return pipeline<AllReduceChunk>(chunks, [=, keep = std::move(keep)](auto& running, std::int64_t i) {
    const std::int64_t first = i * per_chunk;
    running.emplace_back(at(data, first, size_of(type)), std::min(per_chunk, count - first), element, comm,
                         tags.tag(first_tag + i), keep);
  });
}

std::unique_ptr<Operation> direct_reduce_scatter(std::vector<const void*> blocks, std::vector<std::int64_t> counts,
                                                 void* out, Datatype type, ReduceOp op, CommView comm,
                                                 TagSequence& tags, std::shared_ptr<void> keep) {
  const auto me = static_cast<std::size_t>(comm.rank());
  if (out != blocks[me] && counts[me] > 0) {
    std::memmove(out, blocks[me], static_cast<std::size_t>(counts[me] * size_of(type)));
  }
  const Element element{type, op};
  const std::int64_t per_chunk = block_elements(type);
  const std::int64_t longest = comm.size() == 1 ? 0 : *std::max_element(counts.begin(), counts.end());
  const std::int64_t chunks = chunks_for(longest, per_chunk);
  const std::int64_t first_tag = tags.take(chunks);
  return pipeline<ReduceScatterChunk>(chunks, [=, keep = std::move(keep)](auto& running, std::int64_t i) {
    const int tag = tags.tag(first_tag + i);
    const std::int64_t first = i * per_chunk;
    const auto length = [&](std::size_t rank) { return std::clamp<std::int64_t>(counts[rank] - first, 0, per_chunk); };
    Request contributions(keep);
    BlockReduction reduction(at(out, first, size_of(type)), length(me), element, comm, tag);
    for (int k = 1; k < comm.size(); ++k) {
      const int peer = (comm.rank() + k) % comm.size();
      const auto index = static_cast<std::size_t>(peer);
      if (length(index) == 0) continue;
      check(MPI_Isend(at(blocks[index], first, size_of(type)), static_cast<int>(length(index)), element.handle(), peer,
                      tag, comm.handle(), contributions.add()),
            "MPI_Isend", comm.handle());
    }
    running.push_back({std::move(reduction), std::move(contributions)});
  });
}

}  // namespace weft::mpi
