#include <cstdlib>
#include <string_view>

#include "weft/time_parallel/kernels/kernels.h"

namespace weft::time_parallel {

namespace DEFAULT {
template <class T>
Kernels<T> kernel_table();
}
#if defined(__x86_64__)
namespace AVX2 {
template <class T>
Kernels<T> kernel_table();
}
namespace AVX512 {
template <class T>
Kernels<T> kernel_table();
}
#endif

namespace {

template <class T>
Kernels<T> select() {
#if defined(__x86_64__)
  const char* variable = std::getenv("WEFT_CPU_CAPABILITY");
  const std::string_view limit = variable ? variable : "avx512";
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx512 && limit == "avx512") return AVX512::kernel_table<T>();
  if (avx2 && limit != "default") return AVX2::kernel_table<T>();
#endif
  return DEFAULT::kernel_table<T>();
}

}  // namespace

template <class T>
const Kernels<T>& kernels() {
  static const Kernels<T> selected = select<T>();
  return selected;
}
template const Kernels<float>& kernels();
template const Kernels<double>& kernels();

}  // namespace weft::time_parallel
