// Which instructions the processor has: loops over numbers exist for any x86-64 and once more for AVX2.
#pragma once

#include <cstdlib>

#if defined(__x86_64__)
#define WEFT_AVX2 [[gnu::target("avx2")]]
#else
#define WEFT_AVX2
#endif

namespace weft::aggregation {

[[nodiscard]] inline bool has_avx2() {
#if defined(__x86_64__)
  // WEFT_NO_AVX2 lets tests take the way of older processors.
  static const bool present = __builtin_cpu_supports("avx2") > 0 && std::getenv("WEFT_NO_AVX2") == nullptr;
  return present;
#else
  return false;
#endif
}

}  // namespace weft::aggregation
