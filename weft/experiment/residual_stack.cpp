#include <ATen/ops/conv2d.h>

#include <algorithm>

#include "weft/experiment/initial_weights.h"
#include "weft/experiment/layer.h"
#include "weft/layer_parallel/network.h"
#include "weft/partition/scramble.h"
#include "weft/spatial/convolution.h"

namespace weft::experiment {
namespace {

using spatial::DistTensor;

// The convolutions x + (time / depth) f(conv(x)), with the parameters of all of them; every rank draws the same.
std::vector<Parameter> convolutions(const LayerContext& context) {
  const LayerSpec& spec = context.spec;
  const std::int64_t maps = context.sizes.in.maps;
  const std::int64_t fan_in = maps * spec.kernel[0] * spec.kernel[1];
  auto generator = layer_generator(context.seed, context.number);
  std::vector<Parameter> all;
  for (std::int64_t i = 0; i < spec.depth; ++i) {
    const std::string name = spec.name + "." + std::to_string(i);
    all.push_back(whole_parameter(
        name + ".weight",
        initial_weights(spec.init, {maps, maps, spec.kernel[0], spec.kernel[1]}, fan_in, context.type, generator),
        context.rule));
    all.push_back(whole_parameter(name + ".bias", initial_biases(spec.init, maps, fan_in, context.type, generator),
                                  context.rule));
  }
  return all;
}

Sizes centred(const LayerSpec& spec) { return {spec.kernel[0] / 2, spec.kernel[1] / 2}; }

// Layer after layer, on tiles.
class TiledStack final : public Layer {
 public:
  explicit TiledStack(const LayerContext& context) : spec_(context.spec) {
    parameters_ = convolutions(context);
    options_.padding = centred(spec_);
  }

  Flow forward(const Flow& x, const Pass& /*pass*/) override {
    DistTensor state = tiles_of(x, spec_.name);
    const double step = spec_.time / static_cast<double>(spec_.depth);
    for (std::size_t i = 0; i < parameters_.size(); i += 2) {
      const DistTensor change = spatial::convolution(state, parameters_[i].value, parameters_[i + 1].value, options_);
      state.local = state.local.add(activated(change.local, spec_), step);
    }
    return state;
  }

 private:
  LayerSpec spec_;
  spatial::ConvolutionOptions options_;
};

layer_parallel::Options solver_options(const LayerSpec& spec) {
  layer_parallel::Options options;
  options.tf = spec.time;
  options.ends = layer_parallel::Ends::kAll;
  options.forward_grid = options.backward_grid = {.levels = static_cast<int>(spec.parallel.levels),
                                                  .coarsening = spec.parallel.coarsening};
  for (auto* solve : {&options.forward, &options.backward}) {
    solve->max_iterations = static_cast<int>(spec.parallel.iterations);
    solve->skip_downcycle = true;
    solve->relative_tolerance = 1e-6;
    solve->relaxations = multigrid::PerLevel<int>(1, {{0, 0}});
  }
  return options;
}

// The layers spread over the ranks and evaluated at the same time; every rank has the whole field.
class SpreadStack final : public Layer {
 public:
  explicit SpreadStack(const LayerContext& context)
      : spec_(context.spec),
        all_(convolutions(context)),
        solver_(context.mesh.world(), layers(), solver_options(spec_)) {
    const auto& mine = solver_.parameters();
    for (const Parameter& parameter : all_) {
      const bool own = std::any_of(mine.begin(), mine.end(),
                                   [&](const at::Tensor& tensor) { return tensor.is_same(parameter.value); });
      if (!own) continue;
      parameters_.push_back(parameter);
      parameters_.back().only_here = true;
    }
    all_.clear();  // the solver keeps those that it needs
  }

  Flow forward(const Flow& x, const Pass& /*pass*/) override {
    const DistTensor& field = tiles_of(x, spec_.name);
    return DistTensor{solver_.forward(field.local), field.layout};
  }

 private:
  [[nodiscard]] std::vector<layer_parallel::Layer> layers() const {
    std::vector<layer_parallel::Layer> result;
    for (std::size_t i = 0; i < all_.size(); i += 2) {
      layer_parallel::Layer layer;
      layer.parameters = {all_[i].value, all_[i + 1].value};
      layer.name = all_[i].name;
      layer.function = [weight = all_[i].value, bias = all_[i + 1].value, padding = centred(spec_), spec = spec_](
                           const layer_parallel::Tensors& x, double /*dt*/) {
        return layer_parallel::Tensors{
            activated(at::conv2d(x.front(), weight, bias, at::IntArrayRef{1, 1}, padding), spec)};
      };
      result.push_back(std::move(layer));
    }
    return result;
  }

  LayerSpec spec_;
  std::vector<Parameter> all_;
  layer_parallel::LayerParallel solver_;
};

}  // namespace

LayerPtr make_residual_stack(const LayerContext& context, spatial::LayoutPtr& layout) {
  layout = context.inputs;
  // Without other splits the ranks are free for the layers. One rank decides as many would: its curve is theirs.
  if (context.mesh.plan().unsplit) return std::make_unique<SpreadStack>(context);
  return std::make_unique<TiledStack>(context);
}

}  // namespace weft::experiment
