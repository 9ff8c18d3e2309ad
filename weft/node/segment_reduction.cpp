#include "weft/node/segment_reduction.h"

#include <algorithm>
#include <cstring>

#include "weft/mpi/chunks.h"
#include "weft/mpi/fingerprint.h"

namespace weft::node {

Range part_of(std::int64_t count, int rank, int ranks, std::int64_t grain) {
  const std::int64_t grains = (count + grain - 1) / grain;
  const auto begin = [&](int i) { return std::min(grains * i / ranks * grain, count); };
  return {begin(rank), begin(rank + 1) - begin(rank)};
}

SegmentReduction::SegmentReduction(std::shared_ptr<Group> group, const char* kind, SegmentReductionPlan plan,
                                   Datatype type, ReduceOp op, std::shared_ptr<void> keep)
    : SlotOperation(std::move(group), mpi::Fingerprint(kind).add(plan.total).add(type).add(op).value(),
                    std::move(keep)),
      plan_(std::move(plan)),
      type_(type),
      op_(op),
      bytes_(mpi::size_of(type)) {}

std::byte* SegmentReduction::vector_of(int rank) const {
  return plan_.total * bytes_ <= kTinyBytes ? post_of(rank).tiny.data() : area_of(rank);
}

void SegmentReduction::post() {
  std::byte* area = vector_of(group().rank());
  const auto add = [&](const Given& piece) {
    if (piece.bytes > 0) std::memcpy(area, piece.data, static_cast<std::size_t>(piece.bytes));
    area += piece.bytes;
  };
  add(plan_.contribution);
  for (const Given& piece : plan_.pieces) add(piece);
}

bool SegmentReduction::work() {
  if (!reduced_ && !reduce()) return false;
  return plan_.whole == nullptr || mismatched() || collect();
}

bool SegmentReduction::reduce() {
  if (plan_.mine.count > 0 || plan_.whole != nullptr) {
    if (!all_posted()) return false;
    if (!mismatched()) reduce_mine();
  }
  reduced_ = true;
  return true;
}

void SegmentReduction::reduce_mine() {
  const int me = group().rank();
  const auto& [first, count] = plan_.mine;
  thread_local std::vector<const void*> sources;
  sources.clear();
  for (int rank = 0; rank < group().size(); ++rank) {
    sources.push_back(rank == me ? plan_.own : mpi::at(vector_of(rank), first, bytes_));
  }
  reduce_in_order(sources, plan_.out, count, type_, op_);
  if (plan_.whole == nullptr) return;
  // No rank reads this rank's own contribution to its part, so the result can replace it.
  if (count > 0)
    std::memcpy(mpi::at(vector_of(me), first, bytes_), plan_.out, static_cast<std::size_t>(count * bytes_));
  set_reduced();
  for (int k = 1; k < group().size(); ++k) missing_.push_back((me + k) % group().size());
}

bool SegmentReduction::collect() {
  std::erase_if(missing_, [&](int rank) {
    if (!has_reduced(rank)) return false;
    const auto [first, count] = part_of(plan_.total, rank, group().size(), kGrainBytes / bytes_);
    if (count > 0) {
      std::memcpy(mpi::at(plan_.whole, first, bytes_), mpi::at(vector_of(rank), first, bytes_),
                  static_cast<std::size_t>(count * bytes_));
    }
    return true;
  });
  return missing_.empty();
}

}  // namespace weft::node
