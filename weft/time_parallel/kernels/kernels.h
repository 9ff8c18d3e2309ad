// The recurrence kernels of this processor. Their sources are compiled once per instruction set.
#pragma once

#include <string_view>
#include <vector>

#include "weft/time_parallel/kernels/diagonal_kernel.h"
#include "weft/time_parallel/kernels/gru_kernel.h"
#include "weft/time_parallel/kernels/gru_linearize_kernel.h"
#include "weft/time_parallel/kernels/linear_scan_kernel.h"
#include "weft/time_parallel/kernels/lstm_kernel.h"
#include "weft/time_parallel/kernels/lstm_linearize_kernel.h"

namespace weft::time_parallel {

// The kernels of one cell with diagonal recurrent weights.
template <class T>
struct DiagonalKernels {
  void (*forward)(const DiagonalForward<T>&);
  void (*backward)(const DiagonalBackward<T>&);
  void (*sweep)(const DiagonalSweep<T>&);
};

template <class T>
struct Kernels {
  void (*gru_forward)(const GruForward<T>&);
  void (*gru_backward)(const GruBackward<T>&);
  void (*gru_linearize)(const GruLinearize<T>&);
  void (*lstm_forward)(const LstmForward<T>&);
  void (*lstm_backward)(const LstmBackward<T>&);
  void (*lstm_linearize)(const LstmLinearize<T>&);
  DiagonalKernels<T> para_gru;
  DiagonalKernels<T> para_lstm;
  void (*linear_scan)(const LinearScan<T>&);
};

// The kernels of one instruction set: "default", "avx2" or "avx512".
template <class T>
struct InstructionSet {
  std::string_view name;
  Kernels<T> kernels;
};

// Returns the instruction sets that this processor supports, the best one last.
template <class T>
[[nodiscard]] std::vector<InstructionSet<T>> supported_instruction_sets();

// Returns the kernels for the best instruction set of this processor: AVX-512, AVX2 or the compiler's default. The
// environment variable WEFT_CPU_CAPABILITY (default, avx2, avx512) selects a lower one, for tests.
template <class T>
[[nodiscard]] const Kernels<T>& kernels();

}  // namespace weft::time_parallel
