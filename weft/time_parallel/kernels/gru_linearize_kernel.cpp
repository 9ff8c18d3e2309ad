#include "weft/time_parallel/kernels/gru_linearize_kernel.h"

#include <algorithm>

#include "weft/time_parallel/kernels/gru_update.h"
#include "weft/time_parallel/kernels/kernels.h"
#include "weft/time_parallel/kernels/panel_matmul.h"

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {

template <class T>
void gru_linearize(const GruLinearize<T>& p) {
  const std::int64_t hidden = p.hidden;
  const PackedMatrix<T> weight(p.weight, hidden, 3 * hidden, 1, hidden);
  const std::int64_t width = weight.padded_columns();
  Scratch<T> bias(width), products(kBlockRows * width + Vec<T>::size()), diagonals(3 * hidden);
  if (p.bias) std::copy_n(p.bias, 3 * hidden, bias.get());
  for (std::int64_t j = 0; j < 3 * hidden; ++j) diagonals.get()[j] = p.weight[j * hidden + j % hidden];
  const T* of_r = diagonals.get();
  const T* of_z = of_r + hidden;
  const T* of_n = of_z + hidden;

  const Vec<T> one(1);
  for (std::int64_t first = p.first_row; first < p.end_row; first += kBlockRows) {
    const std::int64_t rows = std::min(kBlockRows, p.end_row - first);
    weight.multiply(p.before + first * hidden, hidden, rows, bias.get(), products.get());
    for (std::int64_t k = 0; k < rows; ++k) {
      const std::int64_t row = first + k;
      const T* x = p.input + row * 3 * hidden;
      const T* before = p.before + row * hidden;
      const T* product = products.get() + k * width;
      for_each_vector<T>(hidden, [&](std::int64_t j, std::int64_t count) {
        const Vec<T> r = sigmoid(load(x + j, count) + Vec<T>::loadu(product + j));
        const Vec<T> z = sigmoid(load(x + hidden + j, count) + Vec<T>::loadu(product + hidden + j));
        const Vec<T> kept = kept_share(z, p.implicit_step);
        const Vec<T> c = Vec<T>::loadu(product + 2 * hidden + j);
        const Vec<T> n = hyperbolic_tangent(at::vec::fmadd(r, c, load(x + 2 * hidden + j, count)));
        const Vec<T> h = load(before + j, count);
        store(p.next + row * hidden + j, at::vec::fmadd(kept, h - n, n), count);
        const Vec<T> by_z = (h - n) * kept_share_slope(kept, p.implicit_step);
        const Vec<T> by_n = (one - kept) * (one - n * n);
        const Vec<T> by_c = by_n * r;
        const Vec<T> by_r = by_c * c * (one - r);
        if (p.diagonal) {
          const Vec<T> sum = at::vec::fmadd(by_c, load(of_n + j, count), by_r * load(of_r + j, count));
          store(p.diagonal + row * hidden + j, kept + at::vec::fmadd(by_z, load(of_z + j, count), sum), count);
        }
        if (p.factors) {
          T* factors = p.factors + row * 4 * hidden + j;
          store(factors, kept, count);
          store(factors + hidden, by_z, count);
          store(factors + 2 * hidden, by_c, count);
          store(factors + 3 * hidden, by_r, count);
        }
      });
    }
  }
}

template void gru_linearize(const GruLinearize<float>&);
template void gru_linearize(const GruLinearize<double>&);

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
