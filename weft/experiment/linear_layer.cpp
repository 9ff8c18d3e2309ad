#include <ATen/ops/linear.h>

#include "weft/collective/reduce_scatter.h"
#include "weft/experiment/initial_weights.h"
#include "weft/experiment/layer.h"
#include "weft/spatial/linear.h"

namespace weft::experiment {
namespace {

using spatial::DistTensor;

// Fully connected: each rank has the columns of the inputs it has, and of the outputs all or, where another such layer
// follows, its part. Nobody holds the whole matrix unless the inputs are whole already.
class LinearLayer final : public Layer {
 public:
  LinearLayer(const LayerContext& context, const spatial::LayoutPtr& outputs) : spec_(context.spec), outputs_(outputs) {
    const Extent& in = context.sizes.in;
    auto generator = layer_generator(context.seed, context.number);
    const at::Tensor weight =
        initial_weights(spec_.init, {spec_.outputs, in.values()}, in.values(), context.type, generator);
    add_weight(context, weight);
    if (!spec_.bias) return;
    const at::Tensor bias = initial_biases(spec_.init, spec_.outputs, in.values(), context.type, generator);
    const partition::Box part = outputs_ ? outputs_->tile() : partition::Box::whole({spec_.outputs});
    parameters_.push_back(cut_parameter(spec_.name + ".bias", bias, part, context.rule));
  }

  Flow forward(const Flow& x, const Pass& /*pass*/) override {
    return activated(std::holds_alternative<at::Tensor>(x) ? Flow(of_whole(std::get<at::Tensor>(x)))
                                                           : of_parts(std::get<DistTensor>(x)),
                     spec_);
  }

 private:
  // [outputs, maps, rows, columns] of which this rank has its tile; of a vector [outputs, values].
  void add_weight(const LayerContext& context, const at::Tensor& weight) {
    const Extent& in = context.sizes.in;
    Sizes shape{spec_.outputs};
    if (!in.shape.empty()) shape.push_back(in.maps);
    const Sizes field = in.shape.empty() ? Sizes{in.maps} : in.shape;
    shape.insert(shape.end(), field.begin(), field.end());
    partition::Box part = partition::Box::whole(shape);
    if (context.inputs) {
      const partition::Box tile = context.inputs->tile();
      std::copy(tile.ranges.begin(), tile.ranges.end(), part.ranges.end() - static_cast<std::ptrdiff_t>(tile.dims()));
    }
    parameters_.push_back(cut_parameter(spec_.name + ".weight", weight.view(shape), part, context.rule));
  }

  [[nodiscard]] std::optional<at::Tensor> bias() const {
    return spec_.bias ? std::optional<at::Tensor>(parameters_[1].value) : std::nullopt;
  }

  [[nodiscard]] at::Tensor of_whole(const at::Tensor& x) const {
    return at::linear(x.flatten(1), parameters_[0].value.flatten(1), bias());
  }

  [[nodiscard]] Flow of_parts(const DistTensor& x) const {
    if (!outputs_) return spatial::linear(x, parameters_[0].value, bias());
    x.validate();
    const at::Tensor partial = at::linear(x.local.flatten(1), parameters_[0].value.flatten(1));
    at::Tensor mine = collective::reduce_scatter(partial, outputs_->comm(), mpi::ReduceOp::kSum, 1);
    if (spec_.bias) mine = mine.add(parameters_[1].value);
    return DistTensor{mine, outputs_};
  }

  LayerSpec spec_;
  spatial::LayoutPtr outputs_;  // null: every rank gets all
};

}  // namespace

LayerPtr make_linear(const LayerContext& context, spatial::LayoutPtr& layout) {
  layout = context.inputs && context.outputs_in_parts ? context.mesh.layout({context.spec.outputs}) : nullptr;
  return std::make_unique<LinearLayer>(context, layout);
}

}  // namespace weft::experiment
