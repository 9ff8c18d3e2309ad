// A stack of equal residual layers x + (time / depth) f(conv(x)), on tiles or spread over the ranks.
#include <ATen/ops/conv2d.h>

#include <algorithm>

#include "weft/experiment/file/forms.h"
#include "weft/experiment/file/sizes.h"
#include "weft/experiment/layers/activation.h"
#include "weft/experiment/layers/weights.h"
#include "weft/experiment/layers/window.h"
#include "weft/layer_parallel/network.h"
#include "weft/spatial/nn/layers.h"

namespace weft::experiment {
namespace {

using spatial::DistTensor;
using Parameters = std::vector<spatial::nn::Parameter>;

// Settings of the multigrid solver for a stack whose layers are distributed over the ranks. With one level, it runs the
// layers one after another.
struct SolverSettings {
  std::int64_t levels = 1;
  std::int64_t coarsening = 4;
  std::int64_t iterations = 2;
};

class ResidualStackSettings final : public LayerSettings {
 public:
  ResidualStackSettings(Fields& fields, LayerListReader& /*lists*/) {
    fields.require("depth");
    depth_ = fields.integer("depth", {.least = 1, .most = 100'000}).value_or(1);
    kernel = pair_of(fields.sizes("kernel"), {3, 3});
    time = fields.number("time", kNonNegative).value_or(1);
    activation_ = read_activation(fields, "relu");
    init = read_init(fields);
    if (const Value* parallel = fields.mapping("layer_parallel")) {
      Fields keys(*parallel, "layer_parallel", fields.problems());
      solver.levels = keys.integer("levels", {.least = 1, .most = 30}).value_or(1);
      solver.coarsening = keys.integer("coarsening", {.least = 2, .most = 1000}).value_or(4);
      solver.iterations = keys.integer("iterations", {.least = 1, .most = 1000}).value_or(2);
    }
  }

  [[nodiscard]] bool needs_field() const override { return true; }
  [[nodiscard]] std::int64_t depth() const override { return depth_; }
  [[nodiscard]] bool needs_unsplit_ranks() const override { return solver.levels > 1; }
  [[nodiscard]] Activation activation() const override { return activation_; }
  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override {
    require_odd(kernel, problems);
    return sizes.in;
  }
  [[nodiscard]] std::int64_t parameter_count(const LayerSizes& sizes) const override {
    const std::int64_t inputs = saturating_product({sizes.in.maps, kernel[0], kernel[1]});
    return saturating_product({depth_, weight_count({sizes.in.maps, true, {}}, inputs)});
  }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override;

  [[nodiscard]] Sizes padding() const { return {kernel[0] / 2, kernel[1] / 2}; }

  Sizes kernel;
  double time = 1;
  WeightInit init;
  SolverSettings solver;

 private:
  std::int64_t depth_ = 1;
  Activation activation_;
};

// Draws weight and bias of each convolution, alike on every rank.
Parameters convolutions(const ResidualStackSettings& settings, const LayerContext& context) {
  const std::int64_t maps = context.sizes.in.maps;
  const Sizes shape{maps, maps, settings.kernel[0], settings.kernel[1]};
  const std::int64_t fan_in = maps * settings.kernel[0] * settings.kernel[1];
  auto generator = layer_generator(context.seed, context.number);
  Parameters all;
  for (std::int64_t i = 0; i < settings.depth(); ++i) {
    const auto one = drawn_filters(context.spec.name + "." + std::to_string(i), {maps, true, settings.init}, shape,
                                   fan_in, context.type, generator);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

// Runs layer after layer on tiles.
spatial::nn::LayerPtr tiled_stack(const ResidualStackSettings& settings, const Parameters& all) {
  const auto layer = spatial::nn::on_tiles("a residual stack", [settings, all](const DistTensor& x) {
    DistTensor state = x;
    const double step = settings.time / static_cast<double>(settings.depth());
    for (std::size_t i = 0; i < all.size(); i += 2) {
      const DistTensor change =
          spatial::convolution(state, all[i].value, all[i + 1].value, {.padding = settings.padding()});
      state.local = state.local.add(activated(change.local, settings.activation()), step);
    }
    return state;
  });
  layer->set_parameters(all);
  return layer;
}

layer_parallel::Options solver_options(const ResidualStackSettings& settings) {
  layer_parallel::Options options;
  options.tf = settings.time;
  options.replicated = true;
  options.forward_grid = options.backward_grid = {.levels = static_cast<int>(settings.solver.levels),
                                                  .coarsening = settings.solver.coarsening};
  for (auto* solve : {&options.forward, &options.backward}) {
    solve->max_iterations = static_cast<int>(settings.solver.iterations);
    solve->skip_downcycle = true;
    solve->relative_tolerance = 1e-6;
    solve->relaxations = multigrid::PerLevel<int>(1, {{0, 0}});
  }
  return options;
}

std::vector<layer_parallel::Layer> solver_layers(const ResidualStackSettings& settings, const Parameters& all) {
  std::vector<layer_parallel::Layer> result;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    layer_parallel::Layer layer;
    layer.parameters = {all[i].value, all[i + 1].value};
    layer.name = all[i].name;
    layer.function = [weight = all[i].value, bias = all[i + 1].value, padding = settings.padding(),
                      activation = settings.activation()](const layer_parallel::Tensors& x, double /*dt*/) {
      return layer_parallel::Tensors{
          activated(at::conv2d(x.front(), weight, bias, at::IntArrayRef{1, 1}, padding), activation)};
    };
    result.push_back(std::move(layer));
  }
  return result;
}

SolverResiduals residuals_of(const layer_parallel::LayerParallel& solver) {
  const auto last = [](const multigrid::Statistics& solve) {
    const auto computed = std::find_if(solve.residuals.rbegin(), solve.residuals.rend(),
                                       [](const std::optional<double>& residual) { return residual.has_value(); });
    return computed == solve.residuals.rend() ? std::nullopt : *computed;
  };
  return {last(solver.statistics().forward), last(solver.statistics().backward)};
}

// Spreads the layers over the ranks, which evaluate them at the same time. Every rank has the whole field.
BuiltLayer spread_stack(const ResidualStackSettings& settings, const LayerContext& context, const Parameters& all) {
  const auto solver = std::make_shared<layer_parallel::LayerParallel>(
      context.mesh.world(), solver_layers(settings, all), solver_options(settings));
  const auto layer = spatial::nn::on_tiles("a residual stack", [solver](const DistTensor& field) {
    return DistTensor{solver->forward(field.local), field.layout};
  });
  Parameters mine;
  for (const spatial::nn::Parameter& parameter : all) {
    const bool own = std::any_of(solver->parameters().begin(), solver->parameters().end(),
                                 [&](const at::Tensor& tensor) { return tensor.is_same(parameter.value); });
    if (!own) continue;
    mine.push_back(parameter);
    mine.back().only_here = true;
  }
  layer->set_parameters(std::move(mine));
  if (settings.solver.levels == 1) return {layer, context.inputs};  // exact
  return {layer, context.inputs, [solver] { return residuals_of(*solver); }};
}

BuiltLayer ResidualStackSettings::build(const LayerContext& context) const {
  // A split experiment has no ranks left for the layers. The choice does not depend on the number of ranks, so that the
  // curves are equal.
  const Parameters all = convolutions(*this, context);
  if (!context.mesh.plan().unsplit) return {tiled_stack(*this, all), context.inputs};
  return spread_stack(*this, context, all);
}

const RegisterLayerType kResidualStackRegistered(layer_type<ResidualStackSettings>("residual_stack", "depth"));

}  // namespace
}  // namespace weft::experiment
