// The arithmetic of reductions on two elements, for weft's own loops. MPI's built-in operations give the same results.
#pragma once

#include <complex>
#include <type_traits>

#include "weft/mpi/reduce_op.h"
#include "weft/numeric/half.h"

namespace weft::mpi {

// The arithmetic uses the type of load() and store(): float for float16 and bfloat16, otherwise the type itself.
template <class T>
[[nodiscard]] inline T load(T value) noexcept {
  return value;
}
[[nodiscard]] inline float load(numeric::Float16 value) noexcept { return value.to_float(); }
[[nodiscard]] inline float load(numeric::BFloat16 value) noexcept { return value.to_float(); }

template <class T, class V>
[[nodiscard]] inline T store(V value) noexcept {
  if constexpr (std::is_same_v<T, numeric::Float16> || std::is_same_v<T, numeric::BFloat16>) {
    return T::from_float(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Integers of at least 32 bits without a sign: sums and products wrap around, and the compiler may vectorise them.
template <class V>
using Wrapping = std::common_type_t<std::make_unsigned_t<V>, unsigned>;

// Reduces two values. Sums and products of integers wrap around. If an operand of min or max is NaN, the result is NaN.
template <ReduceOp op, class V>
[[nodiscard]] inline V combine(V a, V b) noexcept {
  if constexpr (op == ReduceOp::kSum || op == ReduceOp::kMean) {
    if constexpr (std::is_integral_v<V>) return static_cast<V>(Wrapping<V>(a) + Wrapping<V>(b));
    return a + b;
  } else if constexpr (op == ReduceOp::kProd) {
    if constexpr (std::is_integral_v<V>) return static_cast<V>(Wrapping<V>(a) * Wrapping<V>(b));
    return a * b;
  } else if constexpr (op == ReduceOp::kMin) {
    return ((a != a) | (a < b)) != 0 ? a : b;  // returns b if b is NaN
  } else if constexpr (op == ReduceOp::kMax) {
    return ((a != a) | (a > b)) != 0 ? a : b;
  } else if constexpr (op == ReduceOp::kLogicalAnd) {
    return static_cast<V>((a != V{0}) & (b != V{0}));
  } else if constexpr (op == ReduceOp::kLogicalOr) {
    return static_cast<V>((a != V{0}) | (b != V{0}));
  } else if constexpr (op == ReduceOp::kLogicalXor) {
    return static_cast<V>((a != V{0}) != (b != V{0}));
  } else if constexpr (op == ReduceOp::kBitAnd) {
    return static_cast<V>(a & b);
  } else if constexpr (op == ReduceOp::kBitOr) {
    return static_cast<V>(a | b);
  } else {
    return static_cast<V>(a ^ b);
  }
}

// The operation on uint8 that reduces bools. A bool is 0 or 1, so "or" is the maximum and "and" the minimum.
[[nodiscard]] constexpr ReduceOp on_bool(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kLogicalAnd:
    case ReduceOp::kBitAnd:
      return ReduceOp::kMin;
    case ReduceOp::kLogicalXor:
    case ReduceOp::kBitXor:
      return ReduceOp::kBitXor;
    default:
      return ReduceOp::kMax;
  }
}

}  // namespace weft::mpi
