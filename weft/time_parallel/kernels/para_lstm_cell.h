// The ParaLSTM cell on vectors of units, with one gate for input and forgetting and with peepholes:
//   f = sigmoid(x_f + b_f + a_f h + p_f c),  g = tanh(x_g + b_g + a_g h),  c' = f c + (1 - f) g
//   o = sigmoid(x_o + b_o + a_o h + p_o c'),  h' = o tanh(c')
// States are h and c, inputs are x_f, x_o and x_g, weights are a_f, a_o, a_g, p_f, p_o, b_f, b_o and b_g, and gates
// are f, o, g and c'.
#pragma once

#include "weft/time_parallel/kernels/diagonal_kernel.h"
#include "weft/time_parallel/kernels/vector_math.h"

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {

template <class T>
struct ParaLstmCell {
  static constexpr DiagonalShape kShape = kParaLstm;
  using V = Vec<T>;

  [[gnu::always_inline]] static void step(const V* x, const V* a, const V* state, V* next, V* gates) {
    const V one(1), h = state[0], c = state[1];
    const V f = sigmoid(at::vec::fmadd(a[0], h, at::vec::fmadd(a[3], c, x[0] + a[5])));
    const V g = hyperbolic_tangent(at::vec::fmadd(a[2], h, x[2] + a[7]));
    const V cell = at::vec::fmadd(f, c, (one - f) * g);
    const V o = sigmoid(at::vec::fmadd(a[1], h, at::vec::fmadd(a[4], cell, x[1] + a[6])));
    next[0] = o * hyperbolic_tangent(cell);
    next[1] = cell;
    gates[0] = f;
    gates[1] = o;
    gates[2] = g;
    gates[3] = cell;
  }

  [[gnu::always_inline]] static void jacobian(const V* a, const V* state, const V* gates, V* blocks) {
    const V one(1), c = state[1], f = gates[0], o = gates[1], g = gates[2];
    const V t = hyperbolic_tangent(gates[3]);
    const V by_f = (c - g) * f * (one - f);
    const V cell_by_h = at::vec::fmadd(by_f, a[0], (one - f) * (one - g * g) * a[2]);
    const V cell_by_c = at::vec::fmadd(by_f, a[3], f);
    const V by_o = t * o * (one - o);
    const V by_cell = at::vec::fmadd(by_o, a[4], o * (one - t * t));
    blocks[0] = at::vec::fmadd(by_o, a[1], by_cell * cell_by_h);
    blocks[1] = by_cell * cell_by_c;
    blocks[2] = cell_by_h;
    blocks[3] = cell_by_c;
  }

  // Adds to grad_a.
  [[gnu::always_inline]] static void adjoint(const V* a, const V* state, const V* gates, const V* grad, V* grad_x,
                                             V* grad_state, V* grad_a) {
    const V one(1), h = state[0], c = state[1], f = gates[0], o = gates[1], g = gates[2];
    const V t = hyperbolic_tangent(gates[3]);
    const V grad_o = grad[0] * t * o * (one - o);
    const V grad_cell = grad[1] + grad[0] * o * (one - t * t) + grad_o * a[4];
    const V grad_f = grad_cell * (c - g) * f * (one - f);
    const V grad_g = grad_cell * (one - f) * (one - g * g);
    grad_x[0] = grad_f;
    grad_x[1] = grad_o;
    grad_x[2] = grad_g;
    grad_state[0] = grad_f * a[0] + grad_o * a[1] + grad_g * a[2];
    grad_state[1] = grad_cell * f + grad_f * a[3];
    grad_a[0] = at::vec::fmadd(grad_f, h, grad_a[0]);
    grad_a[1] = at::vec::fmadd(grad_o, h, grad_a[1]);
    grad_a[2] = at::vec::fmadd(grad_g, h, grad_a[2]);
    grad_a[3] = at::vec::fmadd(grad_f, c, grad_a[3]);
    grad_a[4] = at::vec::fmadd(grad_o, gates[3], grad_a[4]);
    for (int k = 0; k < 3; ++k) grad_a[5 + k] = grad_a[5 + k] + grad_x[k];
  }
};

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
