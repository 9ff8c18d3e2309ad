// Reductions and the MPI_Op that carries each out on a given element type.
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
// "sum", "mean", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor".
[[nodiscard]] std::optional<ReduceOp> reduce_op_from(std::string_view name) noexcept;

// Whether the reduction is defined on the type: no order on complex numbers, no bits in floats, no mean of integers.
[[nodiscard]] bool supports(ReduceOp op, Datatype type) noexcept;

// The operation to hand to MPI. kMean gives the sum: who asked divides. NaN wins min and max, float16 and
// bfloat16 are added in float. Throws std::invalid_argument for what supports() denies.
[[nodiscard]] MPI_Op handle_of(ReduceOp op, Datatype type);

}  // namespace weft::mpi
