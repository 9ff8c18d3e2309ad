// Products of a few rows with a matrix that many steps share. The matrix is packed once into panels of some vectors'
// width, so that the inner loop reads it contiguously and keeps all sums in registers.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/time_parallel/kernels/vector_math.h"

namespace weft::time_parallel {
inline namespace CPU_CAPABILITY {

#if defined(CPU_CAPABILITY_AVX512)
inline constexpr int kPanelVectors = 4;
inline constexpr int kPanelRows = 6;
#else
inline constexpr int kPanelVectors = 2;
inline constexpr int kPanelRows = 4;
#endif

// Rows that kernels without a recurrence compute together, so that their products stay in the cache.
inline constexpr std::int64_t kBlockRows = 48;

// Zero-initialised working memory of a kernel.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t size) : data_(new T[static_cast<std::size_t>(size)]()) {}
  [[nodiscard]] T* get() { return data_.get(); }

 private:
  std::unique_ptr<T[]> data_;
};

// The matrix B of C = A B, [depth, columns], with columns padded to whole vectors.
template <class T>
class PackedMatrix {
 public:
  // Packs element (k, n) from data[k * depth_stride + n * column_stride].
  PackedMatrix(const T* data, std::int64_t depth, std::int64_t columns, std::int64_t depth_stride,
               std::int64_t column_stride)
      : depth_(depth), vectors_((columns + kWidth - 1) / kWidth), packed_(depth * vectors_ * kWidth) {
    for (std::int64_t n = 0; n < columns; ++n) {
      const std::int64_t panel = n / kWidth / kPanelVectors;
      T* to = packed_.get() + panel * kPanelVectors * kWidth * depth + n - panel * kPanelVectors * kWidth;
      const std::int64_t stride = panel_vectors(panel) * kWidth;
      for (std::int64_t k = 0; k < depth; ++k) to[k * stride] = data[k * depth_stride + n * column_stride];
    }
  }

  // The row length of C.
  [[nodiscard]] std::int64_t padded_columns() const { return vectors_ * kWidth; }

  // C[rows, padded_columns] = A[rows, depth] B + bias if bias is given, otherwise C += A B. `bias` has padded_columns.
  void multiply(const T* a, std::int64_t a_stride, std::int64_t rows, const T* bias, T* c) const {
    for (std::int64_t first = 0, panel = 0; first < vectors_; first += kPanelVectors, ++panel) {
      const T* b = packed_.get() + first * kWidth * depth_;
      const T* start = bias ? bias + first * kWidth : nullptr;
      T* to = c + first * kWidth;
      switch (panel_vectors(panel)) {
        case 4:
          panel_rows<4>(a, a_stride, rows, b, start, to);
          break;
        case 3:
          panel_rows<3>(a, a_stride, rows, b, start, to);
          break;
        case 2:
          panel_rows<2>(a, a_stride, rows, b, start, to);
          break;
        default:
          panel_rows<1>(a, a_stride, rows, b, start, to);
          break;
      }
    }
  }

 private:
  static constexpr std::int64_t kWidth = Vec<T>::size();

  [[nodiscard]] std::int64_t panel_vectors(std::int64_t panel) const {
    const std::int64_t left = vectors_ - panel * kPanelVectors;
    return left < kPanelVectors ? left : kPanelVectors;
  }

  template <int V>
  void panel_rows(const T* a, std::int64_t a_stride, std::int64_t rows, const T* b, const T* bias, T* c) const {
    const std::int64_t c_stride = padded_columns();
    std::int64_t row = 0;
    for (; row + kPanelRows <= rows; row += kPanelRows) {
      block<kPanelRows, V>(a + row * a_stride, a_stride, b, bias, c + row * c_stride, c_stride);
    }
    a += row * a_stride;
    c += row * c_stride;
    switch (rows - row) {
      case 5:
        block<5, V>(a, a_stride, b, bias, c, c_stride);
        break;
      case 4:
        block<4, V>(a, a_stride, b, bias, c, c_stride);
        break;
      case 3:
        block<3, V>(a, a_stride, b, bias, c, c_stride);
        break;
      case 2:
        block<2, V>(a, a_stride, b, bias, c, c_stride);
        break;
      case 1:
        block<1, V>(a, a_stride, b, bias, c, c_stride);
        break;
      default:
        break;
    }
  }

  template <int R, int V>
  void block(const T* a, std::int64_t a_stride, const T* b, const T* bias, T* c, std::int64_t c_stride) const {
    Vec<T> sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = Vec<T>::loadu(bias ? bias + v * kWidth : c + r * c_stride + v * kWidth);
    }
    for (std::int64_t k = 0; k < depth_; ++k) {
      Vec<T> column[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) column[v] = Vec<T>::loadu(b + (k * V + v) * kWidth);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Vec<T> factor(a[r * a_stride + k]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[r][v] = at::vec::fmadd(factor, column[v], sum[r][v]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v].store(c + r * c_stride + v * kWidth);
    }
  }

  std::int64_t depth_;
  std::int64_t vectors_;
  mutable Scratch<T> packed_;
};

}  // namespace CPU_CAPABILITY
}  // namespace weft::time_parallel
