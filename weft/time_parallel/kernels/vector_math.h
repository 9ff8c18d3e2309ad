// Vectorised gates. The kernels' sources are compiled once per instruction set; see kernels.h.
#pragma once

#include <ATen/cpu/vec/vec.h>

#include <cstdint>

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {

template <class T>
using Vec = at::vec::Vectorized<T>;

// exp() for gates: an error of 20 ulp in float32 is below the rounding error of the products that precede it.
inline Vec<float> gate_exp(const Vec<float>& x) { return x.exp_u20(); }
inline Vec<double> gate_exp(const Vec<double>& x) { return x.exp(); }

// exp_u20() maps NaN to a number, so NaN is restored.
template <class T>
Vec<T> sigmoid(const Vec<T>& x) {
  const Vec<T> one(1);
  return Vec<T>::blendv(one / (one + gate_exp(x.neg())), x, x.isnan());
}

template <class T>
Vec<T> hyperbolic_tangent(const Vec<T>& x) {
  const Vec<T> two(2);
  return two * sigmoid(x * two) - Vec<T>(1);
}

// Calls body(j, count) for pieces of at most one vector that cover [0, size).
template <class T, class Body>
[[gnu::always_inline]] inline void for_each_vector(std::int64_t size, const Body& body) {
  constexpr std::int64_t kWidth = Vec<T>::size();
  std::int64_t j = 0;
  for (; j + kWidth <= size; j += kWidth) body(j, kWidth);
  if (j < size) body(j, size - j);
}

template <class T>
[[gnu::always_inline]] inline Vec<T> load(const T* p, std::int64_t count) {
  return count == Vec<T>::size() ? Vec<T>::loadu(p) : Vec<T>::loadu(p, count);
}

template <class T>
[[gnu::always_inline]] inline void store(T* p, const Vec<T>& x, std::int64_t count) {
  if (count == Vec<T>::size()) {
    x.store(p);
  } else {
    x.store(p, static_cast<int>(count));
  }
}

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
