#include "weft/node/reduce.h"

#include <algorithm>

#include "weft/mpi/chunks.h"
#include "weft/mpi/collectives.h"
#include "weft/node/cross_memory_reduction.h"
#include "weft/node/options.h"
#include "weft/node/segment_reduction.h"

namespace weft::node {
namespace {

constexpr const char* kKind = "reduce";

// Only the root knows the address of the output.
CrossMemoryReductionPlan across(const void* in, void* out, std::int64_t count, std::int64_t size, int root,
                                const Group& group) {
  const bool is_root = group.rank() == root;
  CrossMemoryReductionPlan plan;
  for (int rank = 0; rank < group.size(); ++rank) {
    const Range part = part_of(count, rank, group.size(), kPageBytes / size);
    const auto* result = is_root ? mpi::at(out, part.first, size) : nullptr;
    plan.exposures.push_back({reinterpret_cast<std::uint64_t>(mpi::at(in, part.first, size)),
                              reinterpret_cast<std::uint64_t>(result), part.count * size});
    if (rank != group.rank()) continue;
    plan.own = mpi::at(in, part.first, size);
    plan.out = is_root ? mpi::at(out, part.first, size) : nullptr;
    plan.count = part.count;
  }
  if (!is_root) plan.targets = {root};
  plan.total = count;
  return plan;
}

}  // namespace

std::unique_ptr<mpi::Operation> start_reduce(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op,
                                             int root, mpi::CommView comm, std::shared_ptr<void> keep) {
  auto group = Group::of(comm);
  if (group == nullptr) return nullptr;
  const std::int64_t size = mpi::size_of(type);
  const std::int64_t bytes = count * size;
  if (bytes <= std::min(group->cross_memory() ? options().one_step_bytes : Group::capacity(), Group::capacity())) {
    SegmentReductionPlan plan;
    plan.total = count;
    if (group->rank() == root) {
      plan.mine = {0, count};
      plan.own = in;
      plan.out = out;
    } else {
      plan.contribution = {in, bytes};
    }
    return std::make_unique<SegmentReduction>(std::move(group), kKind, std::move(plan), type, op, std::move(keep));
  }
  if (!group->cross_memory()) return nullptr;
  auto plan = across(in, out, count, size, root, *group);
  return start_cross_memory_reduction(std::move(group), kKind, std::move(plan), type, op, std::move(keep));
}

void reduce(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, int root, mpi::CommView comm,
            const Call& call) {
  if (const auto operation =
          call.host_memory ? start_reduce(in, out, count, type, op, root, comm, call.keep) : nullptr) {
    return complete(*operation, call);
  }
  const mpi::BlockingScope blocking;
  mpi::reduce(in, out, count, type, op, root, comm);
}

}  // namespace weft::node
