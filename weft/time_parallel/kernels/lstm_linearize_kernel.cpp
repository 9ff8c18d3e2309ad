#include "weft/time_parallel/kernels/lstm_linearize_kernel.h"

#include <algorithm>

#include "weft/time_parallel/kernels/kernels.h"
#include "weft/time_parallel/kernels/panel_matmul.h"

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {

template <class T>
void lstm_linearize(const LstmLinearize<T>& p) {
  const std::int64_t hidden = p.hidden;
  const PackedMatrix<T> weight(p.weight, hidden, 4 * hidden, 1, hidden);
  const std::int64_t width = weight.padded_columns();
  Scratch<T> bias(width), products(kBlockRows * width + Vec<T>::size()), of_gates(4 * hidden);
  if (p.bias) std::copy_n(p.bias, 4 * hidden, bias.get());
  for (std::int64_t j = 0; j < 4 * hidden; ++j) of_gates.get()[j] = p.weight[j * hidden + j % hidden];

  const Vec<T> one(1);
  for (std::int64_t first = p.first_row; first < p.end_row; first += kBlockRows) {
    const std::int64_t rows = std::min(kBlockRows, p.end_row - first);
    weight.multiply(p.before + first * 2 * hidden, 2 * hidden, rows, bias.get(), products.get());
    for (std::int64_t k = 0; k < rows; ++k) {
      const std::int64_t row = first + k;
      const T* x = p.input + row * 4 * hidden;
      const T* product = products.get() + k * width;
      const T* before = p.before + row * 2 * hidden;
      T* next = p.next + row * 2 * hidden;
      for_each_vector<T>(hidden, [&](std::int64_t j, std::int64_t count) {
        const auto preactivation = [&](std::int64_t gate) {
          return load(x + gate * hidden + j, count) + Vec<T>::loadu(product + gate * hidden + j);
        };
        const Vec<T> in = sigmoid(preactivation(0));
        const Vec<T> forget = sigmoid(preactivation(1));
        const Vec<T> g = hyperbolic_tangent(preactivation(2));
        const Vec<T> out = sigmoid(preactivation(3));
        const Vec<T> c = load(before + hidden + j, count);
        const Vec<T> cell = at::vec::fmadd(forget, c, in * g);
        const Vec<T> t = hyperbolic_tangent(cell);
        store(next + j, out * t, count);
        store(next + hidden + j, cell, count);
        const Vec<T> by_in = g * in * (one - in);
        const Vec<T> by_forget = c * forget * (one - forget);
        const Vec<T> by_g = in * (one - g * g);
        const Vec<T> by_out = t * out * (one - out);
        const Vec<T> by_cell = out * (one - t * t);
        if (p.diagonals) {
          const auto of = [&](std::int64_t gate) { return load(of_gates.get() + gate * hidden + j, count); };
          const Vec<T> cell_by_h = at::vec::fmadd(by_in, of(0), at::vec::fmadd(by_forget, of(1), by_g * of(2)));
          T* diagonals = p.diagonals + row * 4 * hidden + j;
          store(diagonals, at::vec::fmadd(by_out, of(3), by_cell * cell_by_h), count);
          store(diagonals + hidden, by_cell * forget, count);
          store(diagonals + 2 * hidden, cell_by_h, count);
          store(diagonals + 3 * hidden, forget, count);
        }
        if (p.factors) {
          T* factors = p.factors + row * 6 * hidden + j;
          store(factors, by_in, count);
          store(factors + hidden, by_forget, count);
          store(factors + 2 * hidden, by_g, count);
          store(factors + 3 * hidden, by_out, count);
          store(factors + 4 * hidden, by_cell, count);
          store(factors + 5 * hidden, forget, count);
        }
      });
    }
  }
}

template void lstm_linearize(const LstmLinearize<float>&);
template void lstm_linearize(const LstmLinearize<double>&);

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
