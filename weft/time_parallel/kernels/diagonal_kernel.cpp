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

// Steps whose arrays stay in the first-level cache while the vectors of a row are computed one after the other. Within
// them, registers hold the sums and the values that pass from step to step.
constexpr std::int64_t kBlock = 16;

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
  for (std::int64_t last = e.steps; last > 0; last -= kBlock) {
    const std::int64_t first = std::max<std::int64_t>(0, last - kBlock);
    for (std::int64_t row = e.first_row; row < e.end_row; ++row) {
      T* grad_state = grads + row * size;
      const T* initial = p.initial + row * size;
      for_each_vector<T>(hidden, [&](std::int64_t j, std::int64_t count) {
        Vec<T> a[kShape.weights], grad[kShape.states], grad_a[kShape.weights];
        load_all<kShape.weights>(p.weight + j, hidden, count, a);
        load_all<kShape.states>(static_cast<const T*>(grad_state) + j, hidden, count, grad);
        load_all<kShape.weights>(static_cast<const T*>(p.grad_weight) + j, hidden, count, grad_a);
        for (std::int64_t i = last; i-- > first;) {
          const std::int64_t t = e.step(i);
          Vec<T> x[kShape.inputs], s[kShape.states], next[kShape.states], gates[kShape.gates];
          Vec<T> grad_x[kShape.inputs], grad_s[kShape.states];
          if (!e.active(row, t)) {
            for (auto& zero : grad_x) zero = Vec<T>(0);
            store_all<kShape.inputs>(p.grad_input.at(t, row) + j, hidden, count, grad_x);
            continue;
          }
          const std::int64_t before = e.reverse ? t + 1 : t - 1;
          const bool is_first = e.first(row, t);
          load_all<kShape.inputs>(p.input.at(t, row) + j, hidden, count, x);
          s[0] = load((is_first ? initial : p.output.at(before, row)) + j, count);
          load_all<kShape.states - 1>((is_first ? initial + hidden : p.carried.at(before, row)) + j, hidden, count,
                                      s + 1);
          if (p.grad_output.data) grad[0] = grad[0] + load(p.grad_output.at(t, row) + j, count);
          Cell<T>::step(x, a, s, next, gates);
          Cell<T>::adjoint(a, s, gates, grad, grad_x, grad_s, grad_a);
          store_all<kShape.inputs>(p.grad_input.at(t, row) + j, hidden, count, grad_x);
          std::copy_n(grad_s, kShape.states, grad);
        }
        store_all<kShape.states>(grad_state + j, hidden, count, grad);
        store_all<kShape.weights>(p.grad_weight + j, hidden, count, grad_a);
      });
    }
  }
}

namespace {

// Returns the largest element; NaN if one of them is.
template <class T>
T largest_element(const Vec<T>& x) {
  T values[Vec<T>::size()];
  x.store(values);
  T largest = values[0];
  for (const T value : values) largest = value > largest || value != value ? value : largest;
  return largest;
}

// to = matrix from, for a matrix of states x states diagonal blocks and `columns` columns.
template <std::int64_t states, std::int64_t columns, class T>
[[gnu::always_inline]] inline void multiply_blocks(const Vec<T>* matrix, const Vec<T>* from, Vec<T>* to) {
  for (std::int64_t i = 0; i < states; ++i) {
    for (std::int64_t column = 0; column < columns; ++column) {
      Vec<T> sum = matrix[i * states] * from[column];
      for (std::int64_t k = 1; k < states; ++k) {
        sum = at::vec::fmadd(matrix[i * states + k], from[k * columns + column], sum);
      }
      to[i * columns + column] = sum;
    }
  }
}

template <bool summary, class T, template <class> class Cell>
[[gnu::always_inline]] inline void sweep_rows(const DiagonalSweep<T>& p) {
  constexpr DiagonalShape kShape = Cell<T>::kShape;
  constexpr std::int64_t kStates = kShape.states, kBlocks = kStates * kStates;
  const Extent& e = p.extent;
  const std::int64_t hidden = e.hidden;
  const Vec<T> scale(p.scale);
  for (std::int64_t first = 0; first < e.steps; first += kBlock) {
    const std::int64_t end = std::min(e.steps, first + kBlock);
    for (std::int64_t row = e.first_row; row < e.end_row; ++row) {
      T* change_of_row = p.change + row * kStates * hidden;
      T* product_of_row = summary ? p.product + row * kBlocks * hidden : nullptr;
      Vec<T> largest(p.largest[row]);
      for_each_vector<T>(hidden, [&](std::int64_t j, std::int64_t count) {
        Vec<T> a[kShape.weights], change[kStates], product[kBlocks];
        load_all<kShape.weights>(p.weight + j, hidden, count, a);
        load_all<kStates>(static_cast<const T*>(change_of_row) + j, hidden, count, change);
        if constexpr (summary) load_all<kBlocks>(static_cast<const T*>(product_of_row) + j, hidden, count, product);
        for (std::int64_t t = first; t < end; ++t) {
          Vec<T> x[kShape.inputs], s[kStates], old[kStates], next[kStates], gates[kShape.gates], blocks[kBlocks];
          Vec<T> passed[kStates];
          load_all<kStates>(p.before.at(t, row) + j, hidden, count, s);
          load_all<kStates>(p.before.at(t + 1, row) + j, hidden, count, old);
          if (e.active(row, e.step(t))) {
            load_all<kShape.inputs>(p.input.at(t, row) + j, hidden, count, x);
            Cell<T>::step(x, a, s, next, gates);
            Cell<T>::jacobian(a, s, gates, blocks);
          } else {  // the state stays
            for (std::int64_t k = 0; k < kBlocks; ++k) blocks[k] = Vec<T>(k % (kStates + 1) == 0 ? 1 : 0);
            std::copy_n(s, kStates, next);
          }
          for (auto& block : blocks) block = block * scale;
          multiply_blocks<kStates, 1, T>(blocks, change, passed);
          for (std::int64_t k = 0; k < kStates; ++k) {
            const Vec<T> residual = next[k] - old[k];
            largest = at::vec::maximum(largest, residual.abs());
            change[k] = passed[k] + residual;
            old[k] = old[k] + change[k];
          }
          store_all<kStates>(p.after.at(t + 1, row) + j, hidden, count, old);
          if constexpr (summary) {
            store_all<kBlocks>(p.jacobian.at(t, row) + j, hidden, count, blocks);
            Vec<T> longer[kBlocks];
            multiply_blocks<kStates, kStates, T>(blocks, product, longer);
            std::copy_n(longer, kBlocks, product);
          }
        }
        store_all<kStates>(change_of_row + j, hidden, count, change);
        if constexpr (summary) store_all<kBlocks>(product_of_row + j, hidden, count, product);
      });
      p.largest[row] = largest_element(largest);
    }
  }
}

}  // namespace

template <class T, template <class> class Cell>
[[gnu::flatten]] void diagonal_sweep(const DiagonalSweep<T>& p) {
  constexpr DiagonalShape kShape = Cell<T>::kShape;
  const Extent& e = p.extent;
  const std::int64_t size = kShape.states * e.hidden;
  for (std::int64_t row = e.first_row; row < e.end_row; ++row) {
    p.largest[row] = 0;
    std::fill_n(p.change + row * size, size, T(0));
    std::copy_n(p.before.at(0, row), size, p.after.at(0, row));
    if (!p.product) continue;
    T* product = p.product + row * kShape.states * size;
    std::fill_n(product, kShape.states * size, T(0));
    for (std::int64_t k = 0; k < kShape.states; ++k) {
      std::fill_n(product + k * (kShape.states + 1) * e.hidden, e.hidden, T(1));
    }
  }
  if (p.product) {
    sweep_rows<true, T, Cell>(p);
  } else {
    sweep_rows<false, T, Cell>(p);
  }
}

template <class T, template <class> class Cell>
DiagonalKernels<T> diagonal_kernels() {
  return {&diagonal_forward<T, Cell>, &diagonal_backward<T, Cell>, &diagonal_sweep<T, Cell>};
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
