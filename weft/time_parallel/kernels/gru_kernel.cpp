#include "weft/time_parallel/kernels/gru_kernel.h"

#include <algorithm>

#include "weft/time_parallel/kernels/gru_update.h"
#include "weft/time_parallel/kernels/kernels.h"
#include "weft/time_parallel/kernels/panel_matmul.h"

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {

template <class T>
[[gnu::flatten]] void gru_forward(const GruForward<T>& p) {
  const Extent& e = p.extent;
  const std::int64_t hidden = e.hidden;
  const PackedMatrix<T> weight(p.weight, hidden, 3 * hidden, 1, hidden);
  const std::int64_t width = weight.padded_columns();
  Scratch<T> bias(width), products(e.rows() * width + Vec<T>::size()), state(e.rows() * hidden);
  if (p.bias) std::copy_n(p.bias, 3 * hidden, bias.get());
  std::copy_n(p.initial + e.first_row * hidden, e.rows() * hidden, state.get());

  for (std::int64_t i = 0; i < e.steps; ++i) {
    const std::int64_t t = e.step(i);
    weight.multiply(state.get(), hidden, e.rows(), bias.get(), products.get());
    for (std::int64_t row = e.first_row; row < e.end_row; ++row) {
      T* h = state.get() + (row - e.first_row) * hidden;
      T* y = p.output.at(t, row);
      if (!e.active(row, t)) {
        std::fill_n(y, hidden, T(0));
        continue;
      }
      const T* x = p.input.at(t, row);
      const T* product = products.get() + (row - e.first_row) * width;
      T* gates = p.gates.data ? p.gates.at(t, row) : nullptr;
      for_each_vector<T>(hidden, [&](std::int64_t j, std::int64_t count) {
        const Vec<T> r = sigmoid(load(x + j, count) + Vec<T>::loadu(product + j));
        const Vec<T> z = sigmoid(load(x + hidden + j, count) + Vec<T>::loadu(product + hidden + j));
        const Vec<T> kept = kept_share(z, p.implicit_step);
        const Vec<T> candidate = Vec<T>::loadu(product + 2 * hidden + j);
        const Vec<T> n = hyperbolic_tangent(at::vec::fmadd(r, candidate, load(x + 2 * hidden + j, count)));
        const Vec<T> next = at::vec::fmadd(kept, load(h + j, count) - n, n);
        store(h + j, next, count);
        store(y + j, next, count);
        if (gates) {
          store(gates + j, r, count);
          store(gates + hidden + j, kept, count);
          store(gates + 2 * hidden + j, n, count);
          store(gates + 3 * hidden + j, candidate, count);
        }
      });
    }
  }
  std::copy_n(state.get(), e.rows() * hidden, p.final_state + e.first_row * hidden);
}

template <class T>
[[gnu::flatten]] void gru_backward(const GruBackward<T>& p) {
  const Extent& e = p.extent;
  const std::int64_t hidden = e.hidden;
  const PackedMatrix<T> weight(p.weight, 3 * hidden, hidden, hidden, 1);
  const std::int64_t width = weight.padded_columns();
  // The gradient of the state, and that of W h + b at the current step.
  Scratch<T> carry(e.rows() * width), products(e.rows() * 3 * hidden);
  if (p.grad_final) {
    for (std::int64_t row = e.first_row; row < e.end_row; ++row) {
      std::copy_n(p.grad_final + row * hidden, hidden, carry.get() + (row - e.first_row) * width);
    }
  }

  const Vec<T> one(1);
  for (std::int64_t i = e.steps; i-- > 0;) {
    const std::int64_t t = e.step(i);
    for (std::int64_t row = e.first_row; row < e.end_row; ++row) {
      T* grad_product = products.get() + (row - e.first_row) * 3 * hidden;
      T* grad_input = p.grad_input.at(t, row);
      T* grad_candidate = p.grad_candidate.at(t, row);
      T* previous = p.previous.at(t, row);
      if (!e.active(row, t)) {
        std::fill_n(grad_product, 3 * hidden, T(0));
        std::fill_n(grad_input, 3 * hidden, T(0));
        std::fill_n(grad_candidate, hidden, T(0));
        std::fill_n(previous, hidden, T(0));
        continue;
      }
      T* grad_state = carry.get() + (row - e.first_row) * width;
      const T* grad_output = p.grad_output.data ? p.grad_output.at(t, row) : nullptr;
      const T* gates = p.gates.at(t, row);
      const T* before = e.first(row, t) ? p.initial + row * hidden
                                        : static_cast<const T*>(p.output.at(e.reverse ? t + 1 : t - 1, row));
      for_each_vector<T>(hidden, [&](std::int64_t j, std::int64_t count) {
        Vec<T> grad = load(grad_state + j, count);
        if (grad_output) grad = grad + load(grad_output + j, count);
        const Vec<T> r = load(gates + j, count);
        const Vec<T> kept = load(gates + hidden + j, count);
        const Vec<T> n = load(gates + 2 * hidden + j, count);
        const Vec<T> candidate = load(gates + 3 * hidden + j, count);
        const Vec<T> h = load(before + j, count);
        const Vec<T> grad_n = grad * (one - kept) * (one - n * n);
        const Vec<T> grad_z = grad * (h - n) * kept_share_slope(kept, p.implicit_step);
        const Vec<T> grad_r = grad_n * candidate * r * (one - r);
        const Vec<T> grad_c = grad_n * r;
        store(previous + j, h, count);
        store(grad_input + j, grad_r, count);
        store(grad_input + hidden + j, grad_z, count);
        store(grad_input + 2 * hidden + j, grad_n, count);
        store(grad_candidate + j, grad_c, count);
        store(grad_product + j, grad_r, count);
        store(grad_product + hidden + j, grad_z, count);
        store(grad_product + 2 * hidden + j, grad_c, count);
        store(grad_state + j, grad * kept, count);
      });
    }
    weight.multiply(products.get(), 3 * hidden, e.rows(), nullptr, carry.get());
  }
  for (std::int64_t row = e.first_row; row < e.end_row; ++row) {
    std::copy_n(carry.get() + (row - e.first_row) * width, hidden, p.grad_initial + row * hidden);
  }
}

template void gru_forward(const GruForward<float>&);
template void gru_forward(const GruForward<double>&);
template void gru_backward(const GruBackward<float>&);
template void gru_backward(const GruBackward<double>&);

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
