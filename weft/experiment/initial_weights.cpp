#include "weft/experiment/initial_weights.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>

#include "weft/partition/scramble.h"

namespace weft::experiment {

at::Generator layer_generator(std::uint64_t seed, std::size_t layer) {
  // Torch's generator looks at the lower 32 bits only: the scrambler brings all of both there.
  const std::uint64_t mixed = partition::scramble(partition::scramble(seed + 1) + layer);
  return at::detail::createCPUGenerator(mixed & 0xFFFFFFFF);
}

at::Tensor initial_weights(const WeightInit& init, const Sizes& shape, std::int64_t fan_in, at::ScalarType type,
                           at::Generator& generator) {
  const auto options = at::TensorOptions().dtype(type);
  const auto uniform = [&](double low, double high) {
    return at::rand(shape, generator, options).mul_(high - low).add_(low);
  };
  switch (init.kind) {
    case WeightInit::Kind::kUniform:
      return uniform(init.low, init.high);
    case WeightInit::Kind::kNormal:
      return at::randn(shape, generator, options).mul_(init.scale).add_(init.loc);
    case WeightInit::Kind::kNodeNormalized: {  // as neon has it: by the sum of a weight matrix's rows and columns
      const std::int64_t fan_out = c10::multiply_integers(shape) / std::max<std::int64_t>(fan_in, 1);
      const double bound = init.scale * std::sqrt(6.0 / static_cast<double>(fan_in + fan_out));
      return uniform(-bound, bound);
    }
    case WeightInit::Kind::kFanIn:
      break;
  }
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));  // torch's own for linear layers and convolutions
  return uniform(-bound, bound);
}

at::Tensor initial_biases(const WeightInit& init, std::int64_t count, std::int64_t fan_in, at::ScalarType type,
                          at::Generator& generator) {
  const bool drawn = init.draws_bias || init.kind == WeightInit::Kind::kFanIn;
  if (drawn) return initial_weights(init, {count, 1}, fan_in, type, generator).flatten();
  return at::full({count}, init.bias, at::TensorOptions().dtype(type));
}

}  // namespace weft::experiment
