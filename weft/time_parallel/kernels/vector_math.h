// Vectorised gates. The kernels' sources are compiled once per instruction set; see kernels.h.
#pragma once

#include <ATen/cpu/vec/vec.h>

#include <cstdint>

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {

template <class T>
using Vec = at::vec::Vectorized<T>;

// 1 / (1 + exp(-x)). In float32 an error of some ulp is below the rounding error of the products that precede it.
#if defined(CPU_CAPABILITY_AVX512)
// exp(-x) = 2^n 2^f for the nearest integer n of -x / ln 2. The polynomial for 2^f has a relative error of 1e-7. The
// bound keeps the denominator finite, as Newton's step for its reciprocal requires; in this order of arguments, NaN
// passes it.
[[gnu::always_inline]] inline Vec<float> sigmoid(const Vec<float>& x) {
  const __m512 one = _mm512_set1_ps(1.0F);
  __m512 exponent = _mm512_mul_ps(x, _mm512_set1_ps(-1.44269504F));
  exponent = _mm512_min_ps(_mm512_set1_ps(100.0F), exponent);
  const __m512 f = _mm512_reduce_ps(exponent, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);  // 0 for infinities
  __m512 power = _mm512_set1_ps(0.00132186725F);
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(0.00967169794F));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(0.0555089295F));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(0.24022238F));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(0.693146856F));
  power = _mm512_fmadd_ps(power, f, one);
  const __m512 denominator = _mm512_add_ps(one, _mm512_scalef_ps(power, _mm512_sub_ps(exponent, f)));
  const __m512 estimate = _mm512_rcp14_ps(denominator);
  return _mm512_fmadd_ps(estimate, _mm512_fnmadd_ps(denominator, estimate, one), estimate);
}
#else
// exp_u20() maps NaN to a number, so NaN is restored.
[[gnu::always_inline]] inline Vec<float> sigmoid(const Vec<float>& x) {
  const Vec<float> one(1);
  return Vec<float>::blendv(one / (one + x.neg().exp_u20()), x, x.isnan());
}
#endif
[[gnu::always_inline]] inline Vec<double> sigmoid(const Vec<double>& x) {
  const Vec<double> one(1);
  return one / (one + x.neg().exp());
}

template <class T>
[[gnu::always_inline]] inline Vec<T> hyperbolic_tangent(const Vec<T>& x) {
  const Vec<T> two(2);
  return at::vec::fmadd(two, sigmoid(x * two), Vec<T>(-1));
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
