// The share of the old state that a GRU keeps in a step; see gru_kernel.h.
#pragma once

#include "weft/time_parallel/kernels/vector_math.h"

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {

// z: the update gate. implicit_step: 0 for an explicit GRU.
template <class T>
[[gnu::always_inline]] inline Vec<T> kept_share(const Vec<T>& z, T implicit_step) {
  const Vec<T> one(1);
  return implicit_step == 0 ? z : one / at::vec::fmadd(Vec<T>(implicit_step), one - z, one);
}

// The derivative of the share by the argument of the gate's sigmoid.
template <class T>
[[gnu::always_inline]] inline Vec<T> kept_share_slope(const Vec<T>& kept, T implicit_step) {
  const Vec<T> one(1);
  if (implicit_step == 0) return kept * (one - kept);
  const Vec<T> u = (one / kept - one) / Vec<T>(implicit_step);  // 1 - z
  return kept * kept * Vec<T>(implicit_step) * u * (one - u);
}

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
