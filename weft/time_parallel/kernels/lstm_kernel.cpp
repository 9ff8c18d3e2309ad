#include "weft/time_parallel/kernels/lstm_kernel.h"

#include <algorithm>
#include <optional>

#include "weft/time_parallel/kernels/kernels.h"
#include "weft/time_parallel/kernels/panel_matmul.h"

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {

template <class T>
[[gnu::flatten]] void lstm_forward(const LstmForward<T>& p) {
  const Extent& e = p.extent;
  const std::int64_t hidden = e.hidden;
  const std::int64_t rows = e.rows();
  const PackedMatrix<T> weight(p.weight, p.projected, 4 * hidden, 1, p.projected);
  std::optional<PackedMatrix<T>> projection;
  if (p.projection) projection.emplace(p.projection, hidden, p.projected, 1, hidden);
  const std::int64_t width = weight.padded_columns();
  Scratch<T> bias(width), products(rows * width + Vec<T>::size()), state(rows * p.projected), cell(rows * hidden);
  Scratch<T> unprojected(projection ? rows * hidden : 0), no_bias(projection ? projection->padded_columns() : 0);
  Scratch<T> projected(projection ? rows * projection->padded_columns() : 0);
  if (p.bias) std::copy_n(p.bias, 4 * hidden, bias.get());
  std::copy_n(p.initial + e.first_row * p.projected, rows * p.projected, state.get());
  std::copy_n(p.initial_cell + e.first_row * hidden, rows * hidden, cell.get());

  for (std::int64_t i = 0; i < e.steps; ++i) {
    const std::int64_t t = e.step(i);
    weight.multiply(state.get(), p.projected, rows, bias.get(), products.get());
    for (std::int64_t k = 0; k < rows; ++k) {
      const std::int64_t row = e.first_row + k;
      T* y = p.output.at(t, row);
      if (!e.active(row, t)) {
        std::fill_n(y, p.projected, T(0));
        continue;
      }
      const T* x = p.input.at(t, row);
      const T* product = products.get() + k * width;
      T* c = cell.get() + k * hidden;
      T* h = (projection ? unprojected : state).get() + k * hidden;
      T* gates = p.gates.data ? p.gates.at(t, row) : nullptr;
      for_each_vector<T>(hidden, [&](std::int64_t j, std::int64_t count) {
        const auto preactivation = [&](std::int64_t gate) {
          return load(x + gate * hidden + j, count) + Vec<T>::loadu(product + gate * hidden + j);
        };
        const Vec<T> in = sigmoid(preactivation(0));
        const Vec<T> forget = sigmoid(preactivation(1));
        const Vec<T> g = hyperbolic_tangent(preactivation(2));
        const Vec<T> out = sigmoid(preactivation(3));
        const Vec<T> next = at::vec::fmadd(forget, load(c + j, count), in * g);
        const Vec<T> hidden_state = out * hyperbolic_tangent(next);
        store(c + j, next, count);
        store(h + j, hidden_state, count);
        if (!projection) store(y + j, hidden_state, count);
        if (gates) {
          store(gates + j, in, count);
          store(gates + hidden + j, forget, count);
          store(gates + 2 * hidden + j, g, count);
          store(gates + 3 * hidden + j, out, count);
          store(gates + 4 * hidden + j, next, count);
        }
      });
    }
    if (!projection) continue;
    projection->multiply(unprojected.get(), hidden, rows, no_bias.get(), projected.get());
    for (std::int64_t k = 0; k < rows; ++k) {
      if (!e.active(e.first_row + k, t)) continue;
      const T* from = projected.get() + k * projection->padded_columns();
      std::copy_n(from, p.projected, state.get() + k * p.projected);
      std::copy_n(from, p.projected, p.output.at(t, e.first_row + k));
    }
  }
  std::copy_n(state.get(), rows * p.projected, p.final_state + e.first_row * p.projected);
  std::copy_n(cell.get(), rows * hidden, p.final_cell + e.first_row * hidden);
}

template <class T>
[[gnu::flatten]] void lstm_backward(const LstmBackward<T>& p) {
  const Extent& e = p.extent;
  const std::int64_t hidden = e.hidden;
  const std::int64_t rows = e.rows();
  const PackedMatrix<T> weight(p.weight, 4 * hidden, p.projected, p.projected, 1);
  std::optional<PackedMatrix<T>> projection;  // the transpose of P
  if (p.projection) projection.emplace(p.projection, p.projected, hidden, hidden, 1);
  const std::int64_t width = weight.padded_columns();
  const std::int64_t hidden_width = projection ? projection->padded_columns() : width;
  // The gradients of h, c, o * tanh(c) and, at the current step, of W h + b.
  Scratch<T> carry(rows * width), cell(rows * hidden), products(rows * 4 * hidden);
  Scratch<T> unprojected(projection ? rows * hidden_width : 0), no_bias(projection ? hidden_width : 0);
  for (std::int64_t k = 0; k < rows; ++k) {
    const std::int64_t row = e.first_row + k;
    if (p.grad_final) std::copy_n(p.grad_final + row * p.projected, p.projected, carry.get() + k * width);
    if (p.grad_final_cell) std::copy_n(p.grad_final_cell + row * hidden, hidden, cell.get() + k * hidden);
  }

  const Vec<T> one(1);
  for (std::int64_t i = e.steps; i-- > 0;) {
    const std::int64_t t = e.step(i);
    for (std::int64_t k = 0; k < rows; ++k) {
      const std::int64_t row = e.first_row + k;
      if (!e.active(row, t) || !p.grad_output.data) continue;
      T* grad = carry.get() + k * width;
      const T* grad_output = p.grad_output.at(t, row);
      for_each_vector<T>(p.projected, [&](std::int64_t j, std::int64_t count) {
        store(grad + j, load(grad + j, count) + load(grad_output + j, count), count);
      });
    }
    if (projection) projection->multiply(carry.get(), width, rows, no_bias.get(), unprojected.get());
    for (std::int64_t k = 0; k < rows; ++k) {
      const std::int64_t row = e.first_row + k;
      T* grad_product = products.get() + k * 4 * hidden;
      T* grad_input = p.grad_input.at(t, row);
      T* previous = p.previous.at(t, row);
      if (!e.active(row, t)) {
        std::fill_n(grad_product, 4 * hidden, T(0));
        std::fill_n(grad_input, 4 * hidden, T(0));
        std::fill_n(previous, p.projected, T(0));
        if (projection) {
          std::fill_n(p.unprojected.at(t, row), hidden, T(0));
          std::fill_n(p.grad_projected.at(t, row), p.projected, T(0));
        }
        continue;
      }
      const std::int64_t step_before = e.reverse ? t + 1 : t - 1;
      const bool first = e.first(row, t);
      const T* h_before = first ? p.initial + row * p.projected : static_cast<const T*>(p.output.at(step_before, row));
      const T* c_before =
          first ? p.initial_cell + row * hidden : static_cast<const T*>(p.gates.at(step_before, row)) + 4 * hidden;
      std::copy_n(h_before, p.projected, previous);
      T* grad_h = carry.get() + k * width;
      if (projection) std::copy_n(grad_h, p.projected, p.grad_projected.at(t, row));
      const T* grad_out = projection ? unprojected.get() + k * hidden_width : grad_h;
      T* hidden_state = projection ? p.unprojected.at(t, row) : nullptr;
      T* grad_c = cell.get() + k * hidden;
      const T* gates = p.gates.at(t, row);
      for_each_vector<T>(hidden, [&](std::int64_t j, std::int64_t count) {
        const Vec<T> in = load(gates + j, count);
        const Vec<T> forget = load(gates + hidden + j, count);
        const Vec<T> g = load(gates + 2 * hidden + j, count);
        const Vec<T> out = load(gates + 3 * hidden + j, count);
        const Vec<T> tanh_c = hyperbolic_tangent(load(gates + 4 * hidden + j, count));
        const Vec<T> grad = load(grad_out + j, count);
        const Vec<T> grad_cell = at::vec::fmadd(grad * out, one - tanh_c * tanh_c, load(grad_c + j, count));
        const auto set = [&](std::int64_t gate, const Vec<T>& value) {
          store(grad_input + gate * hidden + j, value, count);
          store(grad_product + gate * hidden + j, value, count);
        };
        set(0, grad_cell * g * in * (one - in));
        set(1, grad_cell * load(c_before + j, count) * forget * (one - forget));
        set(2, grad_cell * in * (one - g * g));
        set(3, grad * tanh_c * out * (one - out));
        store(grad_c + j, grad_cell * forget, count);
        if (hidden_state) store(hidden_state + j, out * tanh_c, count);
      });
      std::fill_n(grad_h, p.projected, T(0));
    }
    weight.multiply(products.get(), 4 * hidden, rows, nullptr, carry.get());
  }
  for (std::int64_t k = 0; k < rows; ++k) {
    const std::int64_t row = e.first_row + k;
    std::copy_n(carry.get() + k * width, p.projected, p.grad_initial + row * p.projected);
    std::copy_n(cell.get() + k * hidden, hidden, p.grad_initial_cell + row * hidden);
  }
}

template void lstm_forward(const LstmForward<float>&);
template void lstm_forward(const LstmForward<double>&);
template void lstm_backward(const LstmBackward<float>&);
template void lstm_backward(const LstmBackward<double>&);

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
