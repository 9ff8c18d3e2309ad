// Reduces the contributions of several ranks element by element.
#pragma once

#include <cstdint>
#include <span>

#include "weft/mpi/datatype.h"
#include "weft/mpi/reduce_op.h"

namespace weft::node {

using mpi::Datatype;
using mpi::ReduceOp;

// Writes ((s[0] op s[1]) op s[2]) ... to `out`, for `count` elements of each source. `out` may be one of the sources,
// but must not overlap them otherwise. kMean gives the sum. Sums and products of float16 and bfloat16 are accumulated
// in float32 and rounded once. Requires mpi::supports(op, type).
void reduce_in_order(std::span<const void* const> sources, void* out, std::int64_t count, Datatype type,
                     ReduceOp op) noexcept;

}  // namespace weft::node
