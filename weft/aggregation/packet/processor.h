// Detection of AVX2. Loops over elements are compiled for any x86-64 and again for AVX2.
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
  // WEFT_NO_AVX2 lets tests run the code for older processors.
  static const bool present = __builtin_cpu_supports("avx2") > 0 && std::getenv("WEFT_NO_AVX2") == nullptr;
  return present;
#else
  return false;
#endif
}

}  // namespace weft::aggregation
