// Reductions, and the MPI_Op that implements each for an element type.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "weft/mpi/datatype.h"

namespace weft::mpi {

enum class ReduceOp : std::int8_t {
  kSum,
  kMean,
  kProd,
  kMin,
  kMax,
  kLogicalAnd,
  kLogicalOr,
  kLogicalXor,
  kBitAnd,
  kBitOr,
  kBitXor,
};
inline constexpr int kReduceOpCount = 11;

[[nodiscard]] std::string_view name_of(ReduceOp op) noexcept;
// Parses "sum", "mean", "prod", "min", "max", "land", "lor", "lxor", "band", "bor" or "bxor".
[[nodiscard]] std::optional<ReduceOp> reduce_op_from(std::string_view name) noexcept;

// Whether the reduction is defined: complex numbers have no order, floats no bit operations, integers no mean.
[[nodiscard]] bool supports(ReduceOp op, Datatype type) noexcept;

// The MPI_Op of a reduction. kMean gives the sum, which the caller must divide. If an operand is NaN, min and max
// return NaN. Throws std::invalid_argument unless supports() is true. MPI applies the operation to pairs, so it rounds
// float16 and bfloat16 after each addition; see accumulates_in_float32().
[[nodiscard]] MPI_Op handle_of(ReduceOp op, Datatype type);

// True for sums, means and products of float16 and bfloat16: convert to float32, reduce, and round the result once.
[[nodiscard]] bool accumulates_in_float32(ReduceOp op, Datatype type) noexcept;
// Converts `count` elements of float16 or bfloat16 to float32.
void widen(const void* from, Datatype type, std::int64_t count, float* to) noexcept;
// Rounds `count` elements of float32 to float16 or bfloat16.
void narrow(const float* from, std::int64_t count, Datatype type, void* to) noexcept;

}  // namespace weft::mpi
