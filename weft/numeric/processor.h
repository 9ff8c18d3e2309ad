// Detection of AVX2, whose processors also convert float16 (F16C). Loops over elements are compiled for any x86-64 and
// again for AVX2.
#pragma once

#include <cstdlib>

#if defined(__x86_64__)
#define WEFT_AVX2 [[gnu::target("avx2,f16c")]]
#else
#define WEFT_AVX2
#endif

namespace weft::numeric {

[[nodiscard]] inline bool has_avx2() {
#if defined(__x86_64__)
  // WEFT_NO_AVX2 lets tests run the code for older processors.
  static const bool present = __builtin_cpu_supports("avx2") > 0 && std::getenv("WEFT_NO_AVX2") == nullptr;
  return present;
#else
  return false;
#endif
}

}  // namespace weft::numeric
