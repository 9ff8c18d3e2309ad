#include "weft/experiment/layers/local_filter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "weft/experiment/file/sizes.h"
#include "weft/spatial/local_filter.h"

namespace weft::experiment {
namespace {

using spatial::DistTensor;

// The part of the weight [maps out, outputs..., maps in, kernel...] that belongs to this rank's tile of the outputs.
partition::Box part_of(const Sizes& whole, const spatial::LayoutPtr& outputs) {
  partition::Box part = partition::Box::whole(whole);
  const partition::Box tile = outputs->tile();
  for (std::size_t i = 0; i < tile.dims(); ++i) part.ranges[i + 1] = tile.ranges[i];
  return part;
}

const RegisterLayerType kLocalFilterRegistered(
    layer_type<LocalFilterSettings>("local_filter", "", {{"neon.models.layer.LocalFilteringLayer"}}));

}  // namespace

LocalFilterSettings::LocalFilterSettings(Fields& fields, LayerListReader& /*lists*/)
    : window(read_window(fields, {1, 1})) {
  fields.require("maps");
  weights.outputs = fields.integer("maps", kSize).value_or(1);
  weights.init = read_init(fields);
  pretraining = fields.boolean("pretraining").value_or(true);
  sparsity = fields.number("sparsity", kNonNegative).value_or(0);
  tied_weights = fields.boolean("tied_weights").value_or(false);
  pretrain_rate = fields.number("pretrain_rate", kNonNegative).value_or(0.01);
}

LocalFilterSettings::LocalFilterSettings(Fields& fields, NeonLayer& layer)
    : window(read_neon_window(fields, layer)), weights(read_neon_weights(fields, layer, "nofm")) {
  pretraining = fields.boolean("pretraining").value_or(false);
  sparsity = fields.number("sparsity", kNonNegative).value_or(0);
  if (sparsity == 0) sparsity = layer.defaults.sparsity;
  tied_weights = fields.boolean("tied_weights").value_or(false) || layer.defaults.tied_weights;
  pretrain_rate = layer.defaults.pretrain_rate;
}

Extent LocalFilterSettings::output(const LayerSizes& sizes, const LayerProblems& problems) const {
  return window.output(weights.outputs, sizes.in, problems);
}

std::int64_t LocalFilterSettings::parameter_count(const LayerSizes& sizes) const {
  return saturating_product({sizes.out.values(), sizes.in.maps, window.cells()});
}

BuiltLayer LocalFilterSettings::build(const LayerContext& context) const {
  const auto layer = std::make_shared<LocalFilter>(*this, context);
  return {layer, layer->outputs()};
}

LocalFilter::LocalFilter(const LocalFilterSettings& settings, const LayerContext& context)
    : settings_(settings),
      name_(context.spec.name),
      inputs_(context.inputs),
      outputs_(spatial::local_filter_outputs(context.inputs, settings.window.kernel, settings.window.stride,
                                             settings.window.padding)) {
  const std::int64_t maps = context.sizes.in.maps;
  Sizes shape{settings.weights.outputs};
  shape.insert(shape.end(), context.sizes.out.shape.begin(), context.sizes.out.shape.end());
  shape.push_back(maps);
  shape.insert(shape.end(), settings.window.kernel.begin(), settings.window.kernel.end());
  auto generator = layer_generator(context.seed, context.number);
  const at::Tensor whole =
      initial_weights(settings.weights.init, shape, maps * settings.window.cells(), context.type, generator);
  parameters_.push_back(spatial::nn::cut_parameter(name_ + ".weight", whole, part_of(shape, outputs_)));
  after_update();
}

void LocalFilter::normalize(at::Tensor& weights, std::size_t dims) {
  const at::NoGradGuard no_grad;
  const at::Tensor rows = weights.flatten(static_cast<std::int64_t>(dims) + 1);
  const at::Tensor lengths = at::linalg_vector_norm(rows, 2, at::IntArrayRef{-1}, /*keepdim=*/true);
  rows.div_(lengths.masked_fill(lengths.eq(0), 1));
}

void LocalFilter::after_update() { normalize(weights(), inputs_->dims()); }

DistTensor LocalFilter::encode(const DistTensor& x, const at::Tensor& weights) const {
  return spatial::local_filter(x, weights, settings_.window.stride, settings_.window.padding);
}

DistTensor LocalFilter::decode(const DistTensor& y, const at::Tensor& weights) const {
  return spatial::local_defilter(y, weights, inputs_, settings_.window.stride, settings_.window.padding);
}

spatial::nn::Activations LocalFilter::forward(const spatial::nn::Activations& x,
                                              const spatial::nn::ForwardContext& /*context*/) {
  return encode(spatial::nn::tiles_of(x, "layer '" + name_ + "'"), weights());
}

}  // namespace weft::experiment
