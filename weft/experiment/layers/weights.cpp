#include "weft/experiment/layers/weights.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/experiment/file/forms.h"
#include "weft/experiment/file/sizes.h"
#include "weft/partition/scramble.h"

namespace weft::experiment {

WeightInit read_init(Fields& fields) {
  const Value* const init = fields.mapping("weight_init");
  return init != nullptr ? read_weight_init(*init, fields.problems()) : WeightInit{};
}

WeightSettings read_weights(Fields& fields, const std::string& outputs) {
  fields.require(outputs);
  const std::int64_t count = fields.integer(outputs, kSize).value_or(1);
  const bool bias = fields.boolean("bias").value_or(true);
  return {count, bias, read_init(fields)};
}

WeightSettings read_neon_weights(Fields& fields, const NeonLayer& layer, const std::string& outputs) {
  fields.require(outputs);
  WeightSettings settings{fields.integer(outputs, kSize).value_or(1), layer.has_bias, {}};
  const Value* const init = fields.mapping("weight_init");
  if (init == nullptr) return settings;
  settings.init = read_weight_init(*init, fields.problems());
  settings.init.draws_bias = init->find("bias_init") == nullptr;
  return settings;
}

std::int64_t weight_count(const WeightSettings& settings, std::int64_t inputs) {
  const std::int64_t weights = saturating_product({settings.outputs, inputs});
  const bool saturated = weights == std::numeric_limits<std::int64_t>::max();
  return settings.bias && !saturated ? weights + settings.outputs : weights;
}

at::Generator layer_generator(std::uint64_t seed, std::size_t layer) {
  // torch's generator uses the lower 32 bits of a seed. Scrambling makes them depend on all bits of both numbers.
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
    case WeightInit::Kind::kNodeNormalized: {  // neon's rule: the range depends on the sum of rows and columns
      const std::int64_t fan_out = c10::multiply_integers(shape) / std::max<std::int64_t>(fan_in, 1);
      const double bound = init.scale * std::sqrt(6.0 / static_cast<double>(fan_in + fan_out));
      return uniform(-bound, bound);
    }
    case WeightInit::Kind::kFanIn:
      break;
  }
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));  // torch's default
  return uniform(-bound, bound);
}

at::Tensor initial_biases(const WeightInit& init, std::int64_t count, std::int64_t fan_in, at::ScalarType type,
                          at::Generator& generator) {
  const bool drawn = init.draws_bias || init.kind == WeightInit::Kind::kFanIn;
  if (drawn) return initial_weights(init, {count, 1}, fan_in, type, generator).flatten();
  return at::full({count}, init.bias, at::TensorOptions().dtype(type));
}

std::vector<spatial::nn::Parameter> drawn_filters(const std::string& name, const WeightSettings& settings,
                                                  const Sizes& shape, std::int64_t fan_in, at::ScalarType type,
                                                  at::Generator& generator) {
  std::vector<spatial::nn::Parameter> drawn{
      spatial::nn::whole_parameter(name + ".weight", initial_weights(settings.init, shape, fan_in, type, generator))};
  if (!settings.bias) return drawn;
  drawn.push_back(spatial::nn::whole_parameter(
      name + ".bias", initial_biases(settings.init, settings.outputs, fan_in, type, generator)));
  return drawn;
}

std::optional<at::Tensor> bias_of(const std::vector<spatial::nn::Parameter>& parameters) {
  return parameters.size() > 1 ? std::optional<at::Tensor>(parameters[1].value) : std::nullopt;
}

}  // namespace weft::experiment
