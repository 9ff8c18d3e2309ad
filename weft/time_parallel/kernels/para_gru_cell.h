// The ParaGRU cell on vectors of units:
//   z = sigmoid(x_z + b_z + a_z h),  r = sigmoid(x_r + b_r + a_r h),  n = tanh(x_n + b_n + a_n r h)
//   h' = h + z (n - h)
// Inputs are x_z, x_r and x_n, weights are a_z, a_r, a_n, b_z, b_r and b_n, and gates are z, r and n.
#pragma once

#include "weft/time_parallel/kernels/diagonal_kernel.h"
#include "weft/time_parallel/kernels/vector_math.h"

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {

template <class T>
struct ParaGruCell {
  static constexpr DiagonalShape kShape = kParaGru;
  using V = Vec<T>;

  [[gnu::always_inline]] static void step(const V* x, const V* a, const V* state, V* next, V* gates) {
    const V h = state[0];
    const V z = sigmoid(at::vec::fmadd(a[0], h, x[0] + a[3]));
    const V r = sigmoid(at::vec::fmadd(a[1], h, x[1] + a[4]));
    const V n = hyperbolic_tangent(at::vec::fmadd(a[2] * r, h, x[2] + a[5]));
    next[0] = at::vec::fmadd(z, n - h, h);
    gates[0] = z;
    gates[1] = r;
    gates[2] = n;
  }

  [[gnu::always_inline]] static void jacobian(const V* a, const V* state, const V* gates, V* blocks) {
    const V one(1), h = state[0], z = gates[0], r = gates[1], n = gates[2];
    const V n_by_h = (one - n * n) * a[2] * at::vec::fmadd(h * r * (one - r), a[1], r);
    blocks[0] = at::vec::fmadd((n - h) * z * (one - z), a[0], at::vec::fmadd(z, n_by_h, one - z));
  }

  // Adds to grad_a.
  [[gnu::always_inline]] static void adjoint(const V* a, const V* state, const V* gates, const V* grad, V* grad_x,
                                             V* grad_state, V* grad_a) {
    const V one(1), h = state[0], z = gates[0], r = gates[1], n = gates[2];
    // Factors first: few operations of a step then depend on the step after it.
    const V by_n = z * (one - n * n);
    const V by_z = (n - h) * z * (one - z);
    const V by_r = by_n * a[2] * h * r * (one - r);
    const V by_state = at::vec::fmadd(by_z, a[0], at::vec::fmadd(by_r, a[1], at::vec::fmadd(by_n * a[2], r, one - z)));
    const V grad_z = grad[0] * by_z, grad_r = grad[0] * by_r, grad_n = grad[0] * by_n;
    grad_x[0] = grad_z;
    grad_x[1] = grad_r;
    grad_x[2] = grad_n;
    grad_state[0] = grad[0] * by_state;
    grad_a[0] = at::vec::fmadd(grad_z, h, grad_a[0]);
    grad_a[1] = at::vec::fmadd(grad_r, h, grad_a[1]);
    grad_a[2] = at::vec::fmadd(grad_n * r, h, grad_a[2]);
    for (int k = 0; k < 3; ++k) grad_a[3 + k] = grad_a[3 + k] + grad_x[k];
  }
};

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
