// Vectorised gates. The kernels' sources are compiled once per instruction set; see kernels.h.
#pragma once

#include <ATen/cpu/vec/vec.h>

#include <cstdint>

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {

template <class T>
using Vec = at::vec::Vectorized<T>;

// exp() for gates. In float32 an error of some ulp is below the rounding error of the products that precede it.
#if defined(CPU_CAPABILITY_AVX512)
// 2^n 2^f for the nearest integer n of x / ln 2. The polynomial for 2^f has a relative error of 1e-7. The bounds keep
// infinities from becoming NaN; in this order of arguments, NaN passes them.
[[gnu::always_inline]] inline Vec<float> gate_exp(const Vec<float>& x) {
  const __m512 bound = _mm512_set1_ps(150);
  __m512 exponent = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504F));
  exponent = _mm512_max_ps(_mm512_sub_ps(_mm512_setzero_ps(), bound), _mm512_min_ps(bound, exponent));
  const __m512 integer = _mm512_roundscale_ps(exponent, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(exponent, integer);
  __m512 power = _mm512_set1_ps(0.00132186725F);
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(0.00967169794F));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(0.0555089295F));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(0.24022238F));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(0.693146856F));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(power, integer);
}
#else
// exp_u20() maps NaN to a number, so NaN is restored.
[[gnu::always_inline]] inline Vec<float> gate_exp(const Vec<float>& x) {
  return Vec<float>::blendv(x.exp_u20(), x, x.isnan());
}
#endif
[[gnu::always_inline]] inline Vec<double> gate_exp(const Vec<double>& x) { return x.exp(); }

template <class T>
[[gnu::always_inline]] inline Vec<T> sigmoid(const Vec<T>& x) {
  const Vec<T> one(1);
  return one / (one + gate_exp(x.neg()));
}

template <class T>
[[gnu::always_inline]] inline Vec<T> hyperbolic_tangent(const Vec<T>& x) {
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
