#include <cstdlib>
#include <vector>

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

template <class T>
std::vector<InstructionSet<T>> supported_instruction_sets() {
  std::vector<InstructionSet<T>> found{{"default", DEFAULT::kernel_table<T>()}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    found.push_back({"avx2", AVX2::kernel_table<T>()});
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      found.push_back({"avx512", AVX512::kernel_table<T>()});
    }
  }
#endif
  return found;
}
template std::vector<InstructionSet<float>> supported_instruction_sets();
template std::vector<InstructionSet<double>> supported_instruction_sets();

namespace {

// The best instruction set up to the limit in the environment.
template <class T>
Kernels<T> select() {
  const char* limit = std::getenv("WEFT_CPU_CAPABILITY");
  const auto sets = supported_instruction_sets<T>();
  for (const auto& set : sets) {
    if (limit != nullptr && set.name == limit) return set.kernels;
  }
  return sets.back().kernels;
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
