#include "weft/layer_parallel/gradient_bias.h"

#include <ATen/ops/dot.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "weft/layer_parallel/state_transfer.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/waiter.h"

namespace weft::layer_parallel {
namespace {

// Sums of products over some tensors of this rank or, after a reduction, of all ranks.
struct Products {
  double error = 0;  // of the difference with itself
  double exact = 0;
  double approximation = 0;
  double mixed = 0;  // of the approximation with the exact gradient
};

at::Tensor values_of(const at::Tensor& gradient) {
  const at::Tensor real = gradient.is_complex() ? at::view_as_real(gradient.resolve_conj()) : gradient;
  return real.detach().to(at::kCPU, at::kDouble).flatten();
}

double product(const at::Tensor& a, const at::Tensor& b) { return at::dot(a, b).item<double>(); }

void add(Products& sum, const at::Tensor& approximation, const at::Tensor& exact) {
  if (!approximation.defined() && !exact.defined()) return;
  // An undefined gradient is zero.
  const at::Tensor a = approximation.defined() ? values_of(approximation) : values_of(exact).mul(0);
  const at::Tensor e = exact.defined() ? values_of(exact) : a.mul(0);
  const at::Tensor difference = a.sub(e);
  sum.error += product(difference, difference);
  sum.exact += product(e, e);
  sum.approximation += product(a, a);
  sum.mixed += product(a, e);
}

double relative(const Products& products) {
  if (products.error == 0) return 0;
  return products.exact == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(products.error / products.exact);
}

// Not every MPI returns the same sum on all ranks; those of rank 0 count.
void sum_over_ranks(std::vector<double>& values, Communicator& communicator) {
  {
    const mpi::BlockingScope blocking;
    mpi::all_reduce(values.data(), values.data(), static_cast<std::int64_t>(values.size()), mpi::Datatype::kFloat64,
                    mpi::ReduceOp::kSum, communicator.channel(mpi::Direction::kForward));
  }
  std::vector<std::int64_t> bits;
  for (const double value : values) bits.push_back(std::bit_cast<std::int64_t>(value));
  bits = broadcast_numbers(std::move(bits), 0, communicator);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::bit_cast<double>(bits[i]);
}

}  // namespace

GradientBias compare_gradients(const DifferentiatedLoss& approximation, const DifferentiatedLoss& exact,
                               Communicator& communicator) {
  Products weights;
  Products input;
  for (std::size_t i = 0; i < exact.first_parameter + exact.parameters; ++i) {
    if (!exact.inputs[i].requires_grad()) continue;
    add(i < exact.first_parameter ? input : weights, approximation.gradients[i], exact.gradients[i]);
  }
  std::vector<double> sums{weights.error, weights.exact, weights.approximation,
                           weights.mixed, input.error,   input.exact};
  sum_over_ranks(sums, communicator);
  weights = {sums[0], sums[1], sums[2], sums[3]};
  input = {sums[4], sums[5], 0, 0};
  const double of_weights = relative(weights);
  const double of_input = relative(input);
  GradientBias result;
  result.bias = std::isnan(of_weights) ? of_weights : std::max(of_input, of_weights);  // NaN in the input stays NaN
  result.norm = std::sqrt(weights.exact);
  const double norms = std::sqrt(weights.exact * weights.approximation);
  result.cosine = norms == 0 ? (weights.error == 0 ? 1 : 0) : weights.mixed / norms;
  return result;
}

}  // namespace weft::layer_parallel
