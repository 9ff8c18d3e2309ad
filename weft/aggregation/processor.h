// Which instructions the processor has: loops over numbers exist for any x86-64 and once more for AVX2.
#pragma once

#if defined(__x86_64__)
#define WEFT_AVX2 [[gnu::target("avx2")]]
#else
#define WEFT_AVX2
#endif

namespace weft::aggregation {

[[nodiscard]] inline bool has_avx2() {
#if defined(__x86_64__)
  static const bool present = __builtin_cpu_supports("avx2") > 0;
  return present;
#else
  return false;
#endif
}

}  // namespace weft::aggregation
