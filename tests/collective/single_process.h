// Helpers of the collective tests: reproducible tensors and comparison with single-process results.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/real.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/complex.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "weft/weft.h"

namespace weft::collective {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Shape = std::vector<std::int64_t>;

// Distinct, reproducible values in [-1, 1] for each seed. A rank can create the values of every other rank.
inline Tensor values(at::IntArrayRef shape, std::int64_t seed, at::ScalarType type = at::kDouble) {
  const std::int64_t count = c10::multiply_integers(shape);
  const auto wave = [&](double phase) {
    return at::arange(count, at::TensorOptions().dtype(at::kDouble)).mul(0.7123).add(phase).sin().view(shape);
  };
  const double phase = 1.37 * static_cast<double>(seed) + 0.21;
  if (!c10::isComplexType(type)) return wave(phase).to(type);
  return wave(phase).to(type).add(wave(phase + 0.5).to(type).mul(at::Scalar(c10::complex<double>(0, 1))));
}

inline Tensor leaf(const Tensor& x) { return x.detach().clone(at::MemoryFormat::Preserve).set_requires_grad(true); }

// The real inner product; its gradient by b is a for real and complex tensors.
inline Tensor real_dot(const Tensor& a, const Tensor& b) {
  const Tensor sum = a.conj().mul(b).sum();
  return sum.is_complex() ? at::real(sum) : sum;
}

// A loss whose first and second derivatives depend on y, with different weights on each rank.
inline Tensor cubic_loss(const Tensor& y, std::int64_t rank) {
  return real_dot(values(y.sizes(), 100 + rank, y.scalar_type()), y * y * y);
}

inline Tensor grad_of(const Tensor& x) { return x.grad().defined() ? x.grad() : at::zeros_like(x); }

// Expects equal types and shapes, and equal values up to the tolerance relative to the largest value.
inline void expect_close(const Tensor& actual, const Tensor& expected, const std::string& what = "",
                         double tolerance = 1e-12) {
  ASSERT_TRUE(actual.defined()) << what;
  ASSERT_EQ(actual.scalar_type(), expected.scalar_type()) << what;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (actual.numel() == 0) return;
  const auto wide = expected.is_complex() ? at::kComplexDouble : at::kDouble;
  const Tensor a = actual.detach().to(wide);
  const Tensor e = expected.detach().to(wide);
  const double scale = std::max(1.0, e.abs().max().item<double>());
  EXPECT_LE((a - e).abs().max().item<double>(), tolerance * scale) << what << "\ngot\n" << a << "\nexpected\n" << e;
}

inline CommunicatorPtr comm() { return world(); }
inline std::int64_t rank() { return world()->rank(); }
inline std::int64_t size() { return world()->size(); }
inline std::int64_t next() { return (rank() + 1) % size(); }
inline std::int64_t previous() { return (rank() + size() - 1) % size(); }

// Expects that the communicator is usable; tests of errors end with this check.
inline void expect_works(const CommunicatorPtr& communicator) {
  const TapeScope tape;
  const Tensor x = leaf(values({3}, communicator->rank()));
  const Tensor y = all_reduce(x, communicator);
  Tensor sum = at::zeros_like(y);
  for (int r = 0; r < communicator->size(); ++r) sum = sum + values({3}, r);
  expect_close(y, sum, "the communicator works");
  backward(y.sum());
  expect_close(x.grad(), at::zeros_like(x).add(communicator->size()), "the communicator works backward");
}

}  // namespace weft::collective
