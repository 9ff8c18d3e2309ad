#include "weft/node/cross_memory_reduction.h"

#include <algorithm>

#include "weft/mpi/chunks.h"
#include "weft/mpi/fingerprint.h"
#include "weft/node/options.h"

namespace weft::node {
namespace {

// Memory for the contributions of the other ranks to one chunk. Each thread keeps its own: new pages would cost more
// than the transfer.
std::byte* scratch(std::size_t bytes) {
  thread_local std::vector<std::byte> memory;
  if (memory.size() < bytes) memory.resize(bytes);
  return memory.data();
}

class CrossMemoryReduction final : public SlotOperation {
 public:
  CrossMemoryReduction(std::shared_ptr<Group> group, std::uint64_t fingerprint, CrossMemoryReductionPlan plan,
                       Datatype type, ReduceOp op, std::shared_ptr<void> keep)
      : SlotOperation(std::move(group), fingerprint, std::move(keep)),
        plan_(std::move(plan)),
        type_(type),
        op_(op),
        element_bytes_(mpi::size_of(type)) {}

 private:
  void post() override { std::copy(plan_.exposures.begin(), plan_.exposures.end(), exposures_of(group().rank())); }

  bool work() override {
    if (plan_.count == 0) return true;
    if (!all_posted()) return false;
    if (!mismatched()) reduce();
    return true;
  }

  void reduce() {
    // A multiple of the page size, because the kernel handles whole pages.
    constexpr std::int64_t kPage = 4096;
    const int peers = group().size() - 1;
    const std::int64_t chunk_bytes = std::max(options().chunk_bytes / peers / kPage, std::int64_t{1}) * kPage;
    const std::int64_t per_chunk = chunk_bytes / element_bytes_;
    std::byte* memory = scratch(static_cast<std::size_t>(chunk_bytes * (peers + 1)));
    for (std::int64_t first = 0; first < plan_.count; first += per_chunk) {
      reduce_chunk(first, std::min(per_chunk, plan_.count - first), memory, chunk_bytes);
    }
  }

  void reduce_chunk(std::int64_t first, std::int64_t count, std::byte* memory, std::int64_t stride) {
    const int me = group().rank();
    const std::int64_t bytes = count * element_bytes_;
    const auto skipped = static_cast<std::uint64_t>(first * element_bytes_);
    sources_.clear();
    for (int rank = 0; rank < group().size(); ++rank) {
      if (rank == me) {
        sources_.push_back(mpi::at(plan_.own, first, element_bytes_));
        continue;
      }
      group().read(rank, exposures_of(rank)[me].in + skipped, memory, bytes);
      sources_.push_back(memory);
      memory += stride;
    }
    void* result = plan_.out != nullptr ? mpi::at(plan_.out, first, element_bytes_) : memory;
    reduce_in_order(sources_, result, count, type_, op_);
    for (const int target : plan_.targets) group().write(target, exposures_of(target)[me].out + skipped, result, bytes);
  }

  [[nodiscard]] bool exposed_to(int rank) const override {
    return rank != group().rank() && plan_.exposures[static_cast<std::size_t>(rank)].bytes > 0;
  }

  CrossMemoryReductionPlan plan_;
  std::vector<const void*> sources_;
  Datatype type_;
  ReduceOp op_;
  std::int64_t element_bytes_;
};

}  // namespace

std::unique_ptr<mpi::Operation> start_cross_memory_reduction(std::shared_ptr<Group> group, const char* kind,
                                                             CrossMemoryReductionPlan plan, Datatype type, ReduceOp op,
                                                             std::shared_ptr<void> keep) {
  const std::uint64_t fingerprint = mpi::Fingerprint(kind).add(plan.total).add(type).add(op).value();
  return std::make_unique<CrossMemoryReduction>(std::move(group), fingerprint, std::move(plan), type, op,
                                                std::move(keep));
}

}  // namespace weft::node
