// The kernels of one instruction set.
#include "weft/time_parallel/kernels/kernels.h"
#include "weft/time_parallel/kernels/vector_math.h"

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {

template <class T>
void gru_forward(const GruForward<T>& arguments);
template <class T>
void gru_backward(const GruBackward<T>& arguments);
template <class T>
void gru_linearize(const GruLinearize<T>& arguments);
template <class T>
void lstm_forward(const LstmForward<T>& arguments);
template <class T>
void lstm_backward(const LstmBackward<T>& arguments);
template <class T>
void lstm_linearize(const LstmLinearize<T>& arguments);
template <class T>
DiagonalKernels<T> para_gru_kernels();
template <class T>
DiagonalKernels<T> para_lstm_kernels();
template <class T>
void linear_scan(const LinearScan<T>& arguments);

template <class T>
Kernels<T> kernel_table() {
  return {&gru_forward<T>,    &gru_backward<T>,      &gru_linearize<T>,      &lstm_forward<T>, &lstm_backward<T>,
          &lstm_linearize<T>, para_gru_kernels<T>(), para_lstm_kernels<T>(), &linear_scan<T>};
}
template Kernels<float> kernel_table();
template Kernels<double> kernel_table();

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
