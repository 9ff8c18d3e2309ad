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
// return NaN. float16 and bfloat16 are added in float. Throws std::invalid_argument unless supports() is true.
[[nodiscard]] MPI_Op handle_of(ReduceOp op, Datatype type);

}  // namespace weft::mpi
