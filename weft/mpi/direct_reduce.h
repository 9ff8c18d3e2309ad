// Direct reductions: every rank sends each block to the rank that reduces it.
//
// Large vectors are split into chunks, a few of them in flight at a time. Scratch memory then stays small and in cache,
// and additions overlap with transfers. The order of the additions depends only on the number of ranks, so results are
// reproducible. One rank reduces each block, so results are bit-identical on all ranks. float16 and bfloat16 are sent
// as they are, accumulated in float32 and rounded once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/mpi/comm.h"
#include "weft/mpi/datatype.h"
#include "weft/mpi/operation.h"
#include "weft/mpi/reduce_op.h"

namespace weft::mpi {

// Generates message tags for a sequence of operations. Ranks that run the same operations in the same order get the
// same tags. A tag repeats only after all others were used.
class TagSequence {
 public:
  TagSequence() = default;
  explicit TagSequence(int largest) : limit_(static_cast<std::int64_t>(largest) + 1) {}
  // Reserves `count` consecutive numbers and returns the first. tag() maps a number to a tag that MPI allows.
  [[nodiscard]] std::int64_t take(std::int64_t count) noexcept {
    const std::int64_t first = next_;
    next_ += count;
    return first;
  }
  [[nodiscard]] int tag(std::int64_t number) const noexcept { return static_cast<int>(number % limit_); }

 private:
  std::int64_t limit_ = 1;
  std::int64_t next_ = 0;
};

// All-reduce in place. kMean gives the sum, which the caller must divide. `keep` owns the memory: messages that are
// still in flight when the operation is destroyed refer to it.
[[nodiscard]] std::unique_ptr<Operation> direct_all_reduce(void* data, std::int64_t count, Datatype type, ReduceOp op,
                                                           CommView comm, TagSequence& tags,
                                                           std::shared_ptr<void> keep);

// Reduce-scatter: sends blocks[i], of counts[i] elements, to rank i and writes this rank's result to `out`, which may
// be its own block. kMean gives the sum, as above. `keep` owns the blocks and the output.
[[nodiscard]] std::unique_ptr<Operation> direct_reduce_scatter(std::vector<const void*> blocks,
                                                               std::vector<std::int64_t> counts, void* out,
                                                               Datatype type, ReduceOp op, CommView comm,
                                                               TagSequence& tags, std::shared_ptr<void> keep);

}  // namespace weft::mpi
