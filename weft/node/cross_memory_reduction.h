// CrossMemoryReduction: a reduction of large vectors directly between the memory of the ranks.
//
// Every rank reduces its part of the vector in chunks that fit the cache: it reads the contributions of the other
// ranks, reduces them and writes the result to the ranks that need it. The chunks of different ranks are independent,
// so the ranks wait for each other only at the start and at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/node/reduction.h"
#include "weft/node/slot_operation.h"

namespace weft::node {

struct CrossMemoryReductionPlan {
  // By rank: this rank's contribution to the part of that rank, and the memory for its result (0 if it is not needed).
  std::vector<Exposure> exposures;
  const void* own = nullptr;  // this rank's contribution to its own part
  void* out = nullptr;        // the result of its part; may be `own`; null if only other ranks need it
  std::int64_t count = 0;     // elements of its part
  std::vector<int> targets;   // other ranks that need the result
  std::int64_t total = 0;     // elements of the vector
};

// Requires Group::cross_memory().
[[nodiscard]] std::unique_ptr<mpi::Operation> start_cross_memory_reduction(std::shared_ptr<Group> group,
                                                                           const char* kind,
                                                                           CrossMemoryReductionPlan plan, Datatype type,
                                                                           ReduceOp op, std::shared_ptr<void> keep);

}  // namespace weft::node
