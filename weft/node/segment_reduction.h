// SegmentReduction: a reduction of small vectors through the shared segment.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/node/exchange.h"
#include "weft/node/reduction.h"
#include "weft/node/slot_operation.h"

namespace weft::node {

// A range of elements of the vector that the ranks reduce.
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Parts of a vector start at multiples of this, so that two ranks never write to the same cache line.
inline constexpr std::int64_t kGrainBytes = 64;
inline constexpr std::int64_t kPageBytes = 4096;

// The part of each rank if all ranks share the work evenly. Parts start at multiples of `grain` elements.
[[nodiscard]] Range part_of(std::int64_t count, int rank, int ranks, std::int64_t grain);

struct SegmentReductionPlan {
  Given contribution;         // this rank's vector, of at most Group::capacity() bytes
  std::vector<Given> pieces;  // the vector, if it consists of several pieces
  Range mine;                 // the elements that this rank reduces
  const void* own = nullptr;  // this rank's contribution to them
  void* out = nullptr;        // their result; may be `own`
  // If set, all ranks reduce their part_of() the vector and then collect the others' results in this vector.
  void* whole = nullptr;
  std::int64_t total = 0;  // elements of the vector
};

class SegmentReduction final : public SlotOperation {
 public:
  // `kind`: names the collective; must be equal on all ranks.
  SegmentReduction(std::shared_ptr<Group> group, const char* kind, SegmentReductionPlan plan, Datatype type,
                   ReduceOp op, std::shared_ptr<void> keep);

 private:
  void post() override;
  [[nodiscard]] bool work() override;
  [[nodiscard]] bool exposed_to(int /*rank*/) const override { return false; }

  [[nodiscard]] std::byte* vector_of(int rank) const;
  [[nodiscard]] bool reduce();
  void reduce_mine();
  [[nodiscard]] bool collect();

  SegmentReductionPlan plan_;
  std::vector<int> missing_;  // ranks whose part of the result is missing
  Datatype type_;
  ReduceOp op_;
  std::int64_t bytes_;  // of an element
  bool reduced_ = false;
};

}  // namespace weft::node
