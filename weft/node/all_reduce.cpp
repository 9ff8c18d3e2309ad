#include "weft/node/all_reduce.h"

#include <algorithm>

#include "weft/mpi/chunks.h"
#include "weft/mpi/collectives.h"
#include "weft/node/cross_memory_reduction.h"
#include "weft/node/options.h"
#include "weft/node/segment_reduction.h"

namespace weft::node {
namespace {

constexpr const char* kKind = "all_reduce";

std::int64_t one_step_limit() { return std::min(options().one_step_bytes, Group::capacity()); }

SegmentReductionPlan one_step(const void* in, void* out, std::int64_t count, std::int64_t size) {
  return {.contribution = {in, count * size},
          .pieces = {},
          .mine = {0, count},
          .own = in,
          .out = out,
          .whole = nullptr,
          .total = count};
}

SegmentReductionPlan two_steps(const void* in, void* out, std::int64_t count, std::int64_t size, const Group& group) {
  const Range mine = part_of(count, group.rank(), group.size(), kGrainBytes / size);
  return {.contribution = {in, count * size},
          .pieces = {},
          .mine = mine,
          .own = mpi::at(in, mine.first, size),
          .out = mpi::at(out, mine.first, size),
          .whole = out,
          .total = count};
}

CrossMemoryReductionPlan across(const void* in, void* out, std::int64_t count, std::int64_t size, const Group& group) {
  CrossMemoryReductionPlan plan;
  for (int rank = 0; rank < group.size(); ++rank) {
    const Range part = part_of(count, rank, group.size(), kPageBytes / size);
    plan.exposures.push_back({reinterpret_cast<std::uint64_t>(mpi::at(in, part.first, size)),
                              reinterpret_cast<std::uint64_t>(mpi::at(out, part.first, size)), part.count * size});
    if (rank != group.rank()) {
      plan.targets.push_back(rank);
      continue;
    }
    plan.own = mpi::at(in, part.first, size);
    plan.out = mpi::at(out, part.first, size);
    plan.count = part.count;
  }
  plan.total = count;
  return plan;
}

}  // namespace

std::unique_ptr<mpi::Operation> start_all_reduce(const void* in, void* out, std::int64_t count, Datatype type,
                                                 ReduceOp op, mpi::CommView comm, std::shared_ptr<void> keep) {
  auto group = Group::of(comm);
  if (group == nullptr) return nullptr;
  const std::int64_t size = mpi::size_of(type);
  const std::int64_t bytes = count * size;
  if (bytes <= one_step_limit()) {
    return std::make_unique<SegmentReduction>(std::move(group), kKind, one_step(in, out, count, size), type, op,
                                              std::move(keep));
  }
  if (bytes <= std::min(group->cross_memory() ? options().two_step_bytes : Group::capacity(), Group::capacity())) {
    auto plan = two_steps(in, out, count, size, *group);
    return std::make_unique<SegmentReduction>(std::move(group), kKind, std::move(plan), type, op, std::move(keep));
  }
  if (!group->cross_memory()) return nullptr;
  auto plan = across(in, out, count, size, *group);
  return start_cross_memory_reduction(std::move(group), kKind, std::move(plan), type, op, std::move(keep));
}

void all_reduce(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, mpi::CommView comm,
                const Call& call) {
  // Small messages need neither memory from the heap nor atomic reference counts.
  if (call.host_memory && count * mpi::size_of(type) <= one_step_limit()) {
    if (const auto& group = Group::of(comm)) {
      // The communicator owns the group, so the operation does not have to.
      SegmentReduction operation(std::shared_ptr<Group>(std::shared_ptr<void>(), group.get()), kKind,
                                 one_step(in, out, count, mpi::size_of(type)), type, op, call.keep);
      return complete(operation, call);
    }
  }
  if (const auto operation = call.host_memory ? start_all_reduce(in, out, count, type, op, comm, call.keep) : nullptr) {
    return complete(*operation, call);
  }
  const mpi::BlockingScope blocking;
  mpi::all_reduce(in, out, count, type, op, comm);
}

}  // namespace weft::node
