#include "weft/time_parallel/kernels/linear_scan_kernel.h"

#include <algorithm>

#include "weft/time_parallel/kernels/kernels.h"
#include "weft/time_parallel/kernels/panel_matmul.h"

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {
namespace {

// to += J x or to += J^T x for a matrix of diagonal blocks.
template <class T>
void add_product(const T* jacobian, bool transposed, std::int64_t blocks, std::int64_t lanes, const T* x, T* to) {
  for (std::int64_t i = 0; i < blocks; ++i) {
    for (std::int64_t j = 0; j < blocks; ++j) {
      const T* block = jacobian + (i * blocks + j) * lanes;
      const T* from = x + (transposed ? i : j) * lanes;
      T* into = to + (transposed ? j : i) * lanes;
      for_each_vector<T>(lanes, [&](std::int64_t k, std::int64_t count) {
        store(into + k, at::vec::fmadd(load(block + k, count), load(from + k, count), load(into + k, count)), count);
      });
    }
  }
}

// to[0, columns) += factor * x[0, columns)
template <class T>
void add_scaled(T factor, const T* x, std::int64_t columns, T* to) {
  const Vec<T> factors(factor);
  for_each_vector<T>(columns, [&](std::int64_t k, std::int64_t count) {
    store(to + k, at::vec::fmadd(factors, load(x + k, count), load(to + k, count)), count);
  });
}

// to += J x or to += J^T x for a dense matrix of order n and a matrix x with `columns` columns.
template <class T>
void add_dense_product(const T* jacobian, bool transposed, std::int64_t n, std::int64_t columns, const T* x, T* to) {
  if (columns == 1 && transposed) {
    for (std::int64_t i = 0; i < n; ++i) add_scaled(x[i], jacobian + i * n, n, to);
  } else if (columns == 1) {
    for (std::int64_t i = 0; i < n; ++i) {
      Vec<T> sum(0);
      for_each_vector<T>(n, [&](std::int64_t k, std::int64_t count) {
        sum = at::vec::fmadd(load(jacobian + i * n + k, count), load(x + k, count), sum);
      });
      T values[Vec<T>::size()];
      sum.store(values);
      for (const T value : values) to[i] += value;
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        const T* from = x + (transposed ? i : j) * columns;
        add_scaled(jacobian[i * n + j], from, columns, to + (transposed ? j : i) * columns);
      }
    }
  }
}

// The recurrence of one row of the batch, with the product of its matrices if it is wanted.
template <class T>
class RowScan {
 public:
  RowScan(const LinearScan<T>& p, std::int64_t row)
      : p_(p),
        row_(row),
        size_(p.blocks * p.lanes),
        carry_(size_),
        next_(size_),
        product_(p.product ? p.blocks * size_ : 0),
        next_product_(p.product ? p.blocks * size_ : 0) {
    if (p.start) std::copy_n(p.start + row * size_, size_, carry_.get());
    if (p.product) set_identity();
  }

  void run() {
    if (p_.blocks == 1) {
      run_diagonal();
    } else {
      run_blocks();
    }
    if (p_.end) std::copy_n(carry_.get(), size_, p_.end + row_ * size_);
    if (p_.product) std::copy_n(product_.get(), p_.blocks * size_, p_.product + row_ * p_.blocks * size_);
  }

 private:
  static constexpr std::int64_t kCheckInterval = 32;

  // One pass over the vectors of a step, without intermediate copies.
  void run_diagonal() {
    T* carry = carry_.get();
    T* product = p_.product ? product_.get() : nullptr;
    for (std::int64_t i = 0; i < p_.steps; ++i) {
      const std::int64_t at = (p_.adjoint ? p_.steps - 1 - i : i) * p_.batch + row_;
      const T* factors = jacobian(at);
      const T* right_hand = p_.right_hand ? p_.right_hand + at * size_ : nullptr;
      T* solution = p_.solution ? p_.solution + at * size_ : nullptr;
      for_each_vector<T>(size_, [&](std::int64_t k, std::int64_t count) {
        const Vec<T> factor = load(factors + k, count);
        const Vec<T> before = load(carry + k, count);
        const Vec<T> added = right_hand ? load(right_hand + k, count) : Vec<T>(0);
        const Vec<T> value = p_.adjoint ? before + added : at::vec::fmadd(factor, before, added);
        if (solution) store(solution + k, p_.add ? load(solution + k, count) + value : value, count);
        store(carry + k, p_.adjoint ? factor * value : value, count);
        if (product) store(product + k, factor * load(product + k, count), count);
      });
      // The response to a start usually decays to zero.
      if (!p_.right_hand && i % kCheckInterval == 0 && is_zero(carry)) return;
    }
  }

  [[nodiscard]] bool is_zero(const T* values) const {
    return std::all_of(values, values + size_, [](T value) { return value == 0; });
  }

  void run_blocks() {
    for (std::int64_t i = 0; i < p_.steps; ++i) {
      const std::int64_t t = p_.adjoint ? p_.steps - 1 - i : i;
      const std::int64_t at = t * p_.batch + row_;
      if (p_.adjoint) {
        if (p_.right_hand) add(carry_.get(), p_.right_hand + at * size_);
        keep(at);
        std::fill_n(next_.get(), size_, T(0));
        multiply(at, carry_.get(), next_.get());
        std::swap(carry_, next_);
      } else {
        if (p_.right_hand) {
          std::copy_n(p_.right_hand + at * size_, size_, next_.get());
        } else {
          std::fill_n(next_.get(), size_, T(0));
        }
        multiply(at, carry_.get(), next_.get());
        std::swap(carry_, next_);
        keep(at);
      }
      if (p_.product) multiply_product(at);
    }
  }

  [[nodiscard]] bool dense() const { return p_.lanes == 1; }
  [[nodiscard]] const T* jacobian(std::int64_t at) const { return p_.jacobian + at * p_.blocks * size_; }

  void set_identity() {
    for (std::int64_t i = 0; i < p_.blocks; ++i) {
      std::fill_n(product_.get() + (i * p_.blocks + i) * p_.lanes, p_.lanes, T(1));
    }
  }

  // to += x
  void add(T* to, const T* x) {
    for_each_vector<T>(size_, [&](std::int64_t k, std::int64_t count) {
      store(to + k, load(to + k, count) + load(x + k, count), count);
    });
  }

  void keep(std::int64_t at) {
    if (!p_.solution) return;
    if (p_.add) {
      add(p_.solution + at * size_, carry_.get());
    } else {
      std::copy_n(carry_.get(), size_, p_.solution + at * size_);
    }
  }

  void multiply(std::int64_t at, const T* x, T* to) const {
    if (dense()) {
      add_dense_product(jacobian(at), p_.adjoint, p_.blocks, 1, x, to);
    } else {
      add_product(jacobian(at), p_.adjoint, p_.blocks, p_.lanes, x, to);
    }
  }

  // product = J product, column by column of blocks.
  void multiply_product(std::int64_t at) {
    const std::int64_t blocks = p_.blocks;
    T* product = product_.get();
    T* next = next_product_.get();
    std::fill_n(next, blocks * size_, T(0));
    if (dense()) {
      add_dense_product(jacobian(at), p_.adjoint, blocks, blocks, product, next);
    } else {
      for (std::int64_t i = 0; i < blocks; ++i) {
        for (std::int64_t j = 0; j < blocks; ++j) {
          const T* block = jacobian(at) + (p_.adjoint ? j * blocks + i : i * blocks + j) * p_.lanes;
          for (std::int64_t column = 0; column < blocks; ++column) {
            const T* from = product + (j * blocks + column) * p_.lanes;
            T* to = next + (i * blocks + column) * p_.lanes;
            for_each_vector<T>(p_.lanes, [&](std::int64_t k, std::int64_t count) {
              store(to + k, at::vec::fmadd(load(block + k, count), load(from + k, count), load(to + k, count)), count);
            });
          }
        }
      }
    }
    std::swap(product_, next_product_);
  }

  const LinearScan<T>& p_;
  std::int64_t row_;
  std::int64_t size_;
  Scratch<T> carry_, next_, product_, next_product_;
};

}  // namespace

template <class T>
void linear_scan(const LinearScan<T>& p) {
  for (std::int64_t row = p.first_row; row < p.end_row; ++row) RowScan<T>(p, row).run();
}

template void linear_scan(const LinearScan<float>&);
template void linear_scan(const LinearScan<double>&);

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
