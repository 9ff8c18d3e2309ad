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
void lstm_forward(const LstmForward<T>& arguments);
template <class T>
void lstm_backward(const LstmBackward<T>& arguments);

template <class T>
Kernels<T> kernel_table() {
  return {&gru_forward<T>, &gru_backward<T>, &lstm_forward<T>, &lstm_backward<T>};
}
template Kernels<float> kernel_table();
template Kernels<double> kernel_table();

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
