#include "weft/experiment/local_filter_layer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "weft/experiment/initial_weights.h"
#include "weft/spatial/local_filter.h"

namespace weft::experiment {
namespace {

using spatial::DistTensor;

// [maps out, outputs..., maps in, kernel...]: all of the whole's but the outputs that are not in this rank's tile.
partition::Box part_of(const Sizes& whole, const spatial::LayoutPtr& outputs) {
  partition::Box part = partition::Box::whole(whole);
  const partition::Box tile = outputs->tile();
  for (std::size_t i = 0; i < tile.dims(); ++i) part.ranges[i + 1] = tile.ranges[i];
  return part;
}

}  // namespace

LocalFilterLayer::LocalFilterLayer(const LayerContext& context)
    : spec_(context.spec),
      inputs_(context.inputs),
      outputs_(spatial::local_filter_outputs(context.inputs, spec_.kernel, spec_.stride, spec_.padding)) {
  const std::int64_t maps = context.sizes.in.maps;
  Sizes shape{spec_.outputs};
  for (const std::int64_t size : context.sizes.out.shape) shape.push_back(size);
  shape.push_back(maps);
  for (const std::int64_t size : spec_.kernel) shape.push_back(size);
  auto generator = layer_generator(context.seed, context.number);
  const at::Tensor whole =
      initial_weights(spec_.init, shape, maps * spec_.kernel[0] * spec_.kernel[1], context.type, generator);
  parameters_.push_back(cut_parameter(spec_.name + ".weight", whole, part_of(shape, outputs_), context.rule));
  updated();
}

void LocalFilterLayer::normalize(at::Tensor& weights, std::size_t dims) {
  const at::NoGradGuard no_grad;
  const at::Tensor rows = weights.flatten(static_cast<std::int64_t>(dims) + 1);
  const at::Tensor lengths = at::linalg_vector_norm(rows, 2, at::IntArrayRef{-1}, /*keepdim=*/true);
  rows.div_(lengths.masked_fill(lengths.eq(0), 1));
}

void LocalFilterLayer::updated() { normalize(weights(), inputs_->dims()); }

DistTensor LocalFilterLayer::encode(const DistTensor& x, const at::Tensor& weights) const {
  return spatial::local_filter(x, weights, spec_.stride, spec_.padding);
}

DistTensor LocalFilterLayer::decode(const DistTensor& y, const at::Tensor& weights) const {
  return spatial::local_defilter(y, weights, inputs_, spec_.stride, spec_.padding);
}

Flow LocalFilterLayer::forward(const Flow& x, const Pass& /*pass*/) {
  return encode(tiles_of(x, spec_.name), weights());
}

LayerPtr make_local_filter(const LayerContext& context, spatial::LayoutPtr& layout) {
  auto layer = std::make_unique<LocalFilterLayer>(context);
  layout = layer->outputs();
  return layer;
}

}  // namespace weft::experiment
