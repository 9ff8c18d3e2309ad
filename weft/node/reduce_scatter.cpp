#include "weft/node/reduce_scatter.h"

#include <algorithm>

#include "weft/mpi/chunks.h"
#include "weft/mpi/collectives.h"
#include "weft/node/cross_memory_reduction.h"
#include "weft/node/options.h"
#include "weft/node/pieces.h"
#include "weft/node/segment_reduction.h"

namespace weft::node {
namespace {

constexpr const char* kKind = "reduce_scatter";

SegmentReductionPlan one_step(const std::vector<const void*>& blocks, std::span<const std::int64_t> counts, void* out,
                              std::int64_t size, std::size_t me) {
  SegmentReductionPlan plan;
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    if (rank == me) plan.mine = {plan.total, counts[rank]};
    plan.pieces.push_back({blocks[rank], counts[rank] * size});
    plan.total += counts[rank];
  }
  plan.own = blocks[me];
  plan.out = out;
  return plan;
}

CrossMemoryReductionPlan across(const std::vector<const void*>& blocks, std::span<const std::int64_t> counts, void* out,
                                std::int64_t size, std::size_t me) {
  CrossMemoryReductionPlan plan;
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    plan.exposures.push_back({reinterpret_cast<std::uint64_t>(blocks[rank]), 0, counts[rank] * size});
  }
  plan.own = blocks[me];
  plan.out = out;
  plan.count = counts[me];
  plan.total = mpi::total_of(counts);
  return plan;
}

}  // namespace

std::unique_ptr<mpi::Operation> start_reduce_scatter(const std::vector<const void*>& blocks,
                                                     std::span<const std::int64_t> counts, void* out, Datatype type,
                                                     ReduceOp op, mpi::CommView comm, std::shared_ptr<void> keep) {
  auto group = Group::of(comm);
  if (group == nullptr) return nullptr;
  const std::int64_t size = mpi::size_of(type);
  const auto me = static_cast<std::size_t>(group->rank());
  // Every rank reduces only its block, so larger vectors than in an all-reduce are worth one step.
  const std::int64_t limit =
      group->cross_memory() ? std::min(options().one_step_bytes * group->size(), Group::capacity()) : Group::capacity();
  if (mpi::total_of(counts) * size <= limit) {
    return std::make_unique<SegmentReduction>(std::move(group), kKind, one_step(blocks, counts, out, size, me), type,
                                              op, std::move(keep));
  }
  if (!group->cross_memory()) return nullptr;
  return start_cross_memory_reduction(std::move(group), kKind, across(blocks, counts, out, size, me), type, op,
                                      std::move(keep));
}

void reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, Datatype type, ReduceOp op,
                    mpi::CommView comm, const Call& call) {
  const Pieces<const void*> blocks(in, counts, type);
  if (const auto operation =
          call.host_memory ? start_reduce_scatter(blocks.data, counts, out, type, op, comm, call.keep) : nullptr) {
    return complete(*operation, call);
  }
  const mpi::BlockingScope blocking;
  mpi::reduce_scatter(in, out, counts, type, op, comm);
}

}  // namespace weft::node
