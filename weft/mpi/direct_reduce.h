// Reductions without a ring: every rank sends each block to the rank that reduces it, which adds up what arrives.
//
// Large vectors go through in chunks, a few of them under way at a time, so that scratch memory stays small and in
// cache and the adding overlaps the copying. The order of the additions depends on the number of ranks only, so that
// results are the same in every run and, because each block is reduced by one rank, bit-identical on all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/mpi/communicator.h"
#include "weft/mpi/datatype.h"
#include "weft/mpi/operation.h"
#include "weft/mpi/reduce_op.h"

namespace weft::mpi {

// Numbers for the messages of one operation after another. Ranks that perform the same operations in the same order
// draw the same tags; a tag comes again only after all others.
class TagSequence {
 public:
  TagSequence() = default;
  explicit TagSequence(int largest) : limit_(static_cast<std::int64_t>(largest) + 1) {}
  // The first of `count` consecutive numbers; tag() folds each into what MPI allows.
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

// All-reduce in place. kMean gives the sum: who asked divides. The memory must live until the operation ends.
[[nodiscard]] std::unique_ptr<Operation> direct_all_reduce(void* data, std::int64_t count, Datatype type, ReduceOp op,
                                                           CommunicatorView comm, TagSequence& tags);

// Reduce-scatter: `blocks[i]`, of counts[i] elements, goes to rank i; this rank's sum is written to `out`, which may be
// its own block. kMean as above.
[[nodiscard]] std::unique_ptr<Operation> direct_reduce_scatter(std::vector<const void*> blocks,
                                                               std::vector<std::int64_t> counts, void* out,
                                                               Datatype type, ReduceOp op, CommunicatorView comm,
                                                               TagSequence& tags);

}  // namespace weft::mpi
