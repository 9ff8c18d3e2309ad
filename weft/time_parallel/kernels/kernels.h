// The recurrence kernels of this processor. Their sources are compiled once per instruction set.
#pragma once

#include "weft/time_parallel/kernels/gru_kernel.h"
#include "weft/time_parallel/kernels/lstm_kernel.h"

namespace weft::time_parallel {

template <class T>
struct Kernels {
  void (*gru_forward)(const GruForward<T>&);
  void (*gru_backward)(const GruBackward<T>&);
  void (*lstm_forward)(const LstmForward<T>&);
  void (*lstm_backward)(const LstmBackward<T>&);
};

// Returns the kernels for the best instruction set of this processor: AVX-512, AVX2 or the compiler's default. The
// environment variable WEFT_CPU_CAPABILITY (default, avx2, avx512) selects a lower one, for tests.
template <class T>
[[nodiscard]] const Kernels<T>& kernels();

}  // namespace weft::time_parallel
