// Data-parallel linear regression: every rank holds part of the points, and all ranks get the same fit.
//
//   mpirun -n 2 linear_regression
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <cstdio>

#include "weft/weft.h"

namespace {

constexpr std::int64_t kPoints = 10'000;
constexpr int kSteps = 800;
constexpr double kRate = 0.2;

// y = 2 - 3 x + 0.5 x^2 with deterministic noise, so that every program uses the same points.
struct Points {
  at::Tensor features;  // 1, x, x^2
  at::Tensor targets;
};

Points points_of(std::int64_t rank, std::int64_t ranks) {
  const at::Tensor i = at::arange(rank, kPoints, ranks, at::kDouble);
  const at::Tensor x = i / (kPoints - 1) * 2 - 1;
  const at::Tensor noise = at::sin(i * 12.9898) * 0.1;
  return {at::stack({at::ones_like(x), x, x * x}, 1), 2 - 3 * x + 0.5 * x * x + noise};
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  const weft::CommunicatorPtr comm = weft::world();
  const Points mine = points_of(comm->rank(), comm->size());
  at::Tensor weights = at::zeros({3}, at::kDouble).set_requires_grad(true);
  double last = 0;
  for (int step = 0; step < kSteps; ++step) {
    // Average the weights of all ranks, so that they stay equal.
    const at::Tensor shared = weft::collective::all_reduce(weights, comm, weft::ReduceOp::kMean);
    const at::Tensor error = mine.features.matmul(shared) - mine.targets;
    const at::Tensor loss = error.square().sum() / kPoints;
    // Computes the gradient of the sum of all ranks' losses, so no further averaging is necessary.
    weft::backward(loss);
    const at::NoGradGuard no_grad;
    last = weft::collective::all_reduce(loss.detach(), comm).item<double>();
    // Each rank holds 1/n of the mean's gradient.
    weights -= kRate * comm->size() * weights.grad();
    weights.mutable_grad().reset();
  }
  if (comm->rank() == 0) {
    const auto fit = weights.detach();
    std::printf("C++     %d ranks: %.9f %.9f %.9f  mean squared error %.6f\n", comm->size(), fit[0].item<double>(),
                fit[1].item<double>(), fit[2].item<double>(), last);
  }
  return 0;
}
