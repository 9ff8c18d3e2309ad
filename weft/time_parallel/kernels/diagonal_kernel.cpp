#include "weft/time_parallel/kernels/diagonal_kernel.h"

#include <algorithm>

#include "weft/time_parallel/kernels/kernels.h"
#include "weft/time_parallel/kernels/panel_matmul.h"
#include "weft/time_parallel/kernels/para_gru_cell.h"
#include "weft/time_parallel/kernels/para_lstm_cell.h"

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {
namespace {

// Reads (writes) `arrays` vectors at distances of `stride`.
template <std::int64_t arrays, class T>
[[gnu::always_inline]] inline void load_all(const T* from, std::int64_t stride, std::int64_t count, Vec<T>* to) {
  for (std::int64_t k = 0; k < arrays; ++k) to[k] = load(from + k * stride, count);
}
template <std::int64_t arrays, class T>
[[gnu::always_inline]] inline void store_all(T* to, std::int64_t stride, std::int64_t count, const Vec<T>* from) {
  for (std::int64_t k = 0; k < arrays; ++k) store(to + k * stride, from[k], count);
}

}  // namespace

template <class T, template <class> class Cell>
[[gnu::flatten]] void diagonal_forward(const DiagonalForward<T>& p) {
  constexpr DiagonalShape kShape = Cell<T>::kShape;
  const Extent& e = p.extent;
  const std::int64_t hidden = e.hidden;
  const std::int64_t size = kShape.states * hidden;
  T* states = p.final_state;
  std::copy_n(p.initial + e.first_row * size, e.rows() * size, states + e.first_row * size);
  for (std::int64_t i = 0; i < e.steps; ++i) {
    const std::int64_t t = e.step(i);
    for (std::int64_t row = e.first_row; row < e.end_row; ++row) {
      T* state = states + row * size;
      T* y = p.output.at(t, row);
      if (!e.active(row, t)) {
        std::fill_n(y, hidden, T(0));
        continue;
      }
      const T* input = p.input.at(t, row);
      T* carried = p.carried.data ? p.carried.at(t, row) : nullptr;
      for_each_vector<T>(hidden, [&](std::int64_t j, std::int64_t count) {
        Vec<T> x[kShape.inputs], a[kShape.weights], s[kShape.states], next[kShape.states], gates[kShape.gates];
        load_all<kShape.inputs>(input + j, hidden, count, x);
        load_all<kShape.weights>(p.weight + j, hidden, count, a);
        load_all<kShape.states>(static_cast<const T*>(state) + j, hidden, count, s);
        Cell<T>::step(x, a, s, next, gates);
        store_all<kShape.states>(state + j, hidden, count, next);
        store(y + j, next[0], count);
        if (carried) store_all<kShape.states - 1>(carried + j, hidden, count, next + 1);
      });
    }
  }
}

template <class T, template <class> class Cell>
[[gnu::flatten]] void diagonal_backward(const DiagonalBackward<T>& p) {
  constexpr DiagonalShape kShape = Cell<T>::kShape;
  const Extent& e = p.extent;
  const std::int64_t hidden = e.hidden;
  const std::int64_t size = kShape.states * hidden;
  // The gradient of the states; it becomes that of the initial states.
  T* grads = p.grad_initial;
  if (p.grad_final) {
    std::copy_n(p.grad_final + e.first_row * size, e.rows() * size, grads + e.first_row * size);
  } else {
    std::fill_n(grads + e.first_row * size, e.rows() * size, T(0));
  }
  for (std::int64_t i = e.steps; i-- > 0;) {
    const std::int64_t t = e.step(i);
    for (std::int64_t row = e.first_row; row < e.end_row; ++row) {
      T* grad_input = p.grad_input.at(t, row);
      if (!e.active(row, t)) {
        std::fill_n(grad_input, kShape.inputs * hidden, T(0));
        continue;
      }
      T* grad_state = grads + row * size;
      const T* initial = p.initial + row * size;
      const std::int64_t before = e.reverse ? t + 1 : t - 1;
      const T* h = e.first(row, t) ? initial : p.output.at(before, row);
      const T* carried = e.first(row, t) ? initial + hidden : p.carried.at(before, row);
      const T* input = p.input.at(t, row);
      const T* grad_output = p.grad_output.data ? p.grad_output.at(t, row) : nullptr;
      for_each_vector<T>(hidden, [&](std::int64_t j, std::int64_t count) {
        Vec<T> x[kShape.inputs], a[kShape.weights], s[kShape.states], next[kShape.states], gates[kShape.gates];
        Vec<T> grad[kShape.states], grad_x[kShape.inputs], grad_s[kShape.states], grad_a[kShape.weights];
        load_all<kShape.inputs>(input + j, hidden, count, x);
        load_all<kShape.weights>(p.weight + j, hidden, count, a);
        s[0] = load(h + j, count);
        load_all<kShape.states - 1>(carried + j, hidden, count, s + 1);
        load_all<kShape.states>(static_cast<const T*>(grad_state) + j, hidden, count, grad);
        load_all<kShape.weights>(static_cast<const T*>(p.grad_weight) + j, hidden, count, grad_a);
        if (grad_output) grad[0] = grad[0] + load(grad_output + j, count);
        Cell<T>::step(x, a, s, next, gates);
        Cell<T>::adjoint(a, s, gates, grad, grad_x, grad_s, grad_a);
        store_all<kShape.inputs>(grad_input + j, hidden, count, grad_x);
        store_all<kShape.states>(grad_state + j, hidden, count, grad_s);
        store_all<kShape.weights>(p.grad_weight + j, hidden, count, grad_a);
      });
    }
  }
}

template <class T, template <class> class Cell>
[[gnu::flatten]] void diagonal_linearize(const DiagonalLinearize<T>& p) {
  constexpr DiagonalShape kShape = Cell<T>::kShape;
  const std::int64_t hidden = p.hidden;
  for (std::int64_t row = p.first_row; row < p.end_row; ++row) {
    for_each_vector<T>(hidden, [&](std::int64_t j, std::int64_t count) {
      Vec<T> x[kShape.inputs], a[kShape.weights], s[kShape.states], next[kShape.states], gates[kShape.gates];
      Vec<T> blocks[kShape.states * kShape.states];
      load_all<kShape.inputs>(p.input + row * kShape.inputs * hidden + j, hidden, count, x);
      load_all<kShape.weights>(p.weight + j, hidden, count, a);
      load_all<kShape.states>(p.before + row * kShape.states * hidden + j, hidden, count, s);
      Cell<T>::step(x, a, s, next, gates);
      Cell<T>::jacobian(a, s, gates, blocks);
      store_all<kShape.states>(p.next + row * kShape.states * hidden + j, hidden, count, next);
      store_all<kShape.states * kShape.states>(p.jacobian + row * kShape.states * kShape.states * hidden + j, hidden,
                                               count, blocks);
    });
  }
}

template <class T, template <class> class Cell>
DiagonalKernels<T> diagonal_kernels() {
  return {&diagonal_forward<T, Cell>, &diagonal_backward<T, Cell>, &diagonal_linearize<T, Cell>};
}

template <class T>
DiagonalKernels<T> para_gru_kernels() {
  return diagonal_kernels<T, ParaGruCell>();
}
template <class T>
DiagonalKernels<T> para_lstm_kernels() {
  return diagonal_kernels<T, ParaLstmCell>();
}
template DiagonalKernels<float> para_gru_kernels();
template DiagonalKernels<double> para_gru_kernels();
template DiagonalKernels<float> para_lstm_kernels();
template DiagonalKernels<double> para_lstm_kernels();

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
