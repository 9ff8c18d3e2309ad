#include "weft/experiment/layers/network.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "weft/experiment/file/description.h"
#include "weft/experiment/file/sizes.h"

namespace weft::experiment {
bool linear_follows(const std::vector<LayerSpec>& layers, std::size_t i) {
  return std::any_of(layers.begin() + static_cast<std::ptrdiff_t>(i) + 1, layers.end(),
                     [](const LayerSpec& layer) { return layer.settings->fully_connected(); });
}

Network::Network(const Experiment& experiment, const Mesh& mesh)
    : images_(mesh.layout(image_extent(experiment.dataset).shape)) {
  Problems problems(experiment.file);
  const auto sizes = layer_sizes(experiment, problems);
  problems.throw_if_any();
  spatial::LayoutPtr layout = images_;
  const auto& specs = experiment.model.layers;
  const auto type = experiment.float64 ? at::kDouble : at::kFloat;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const LayerContext context{specs[i], sizes[i], mesh, experiment.seed, i, type, linear_follows(specs, i), layout};
    BuiltLayer built = specs[i].settings->build(context);
    layout = built.outputs;
    auto& own = parameters_.emplace_back();
    const LearningRule rule = specs[i].rule.value_or(experiment.model.rule);
    for (spatial::nn::Parameter& parameter : built.layer->parameters())
      own.push_back(std::make_unique<Parameter>(Parameter{std::move(parameter), rule}));
    layers_.append(std::move(built.layer));
    if (built.residuals) residuals_.emplace_back(specs[i].name, std::move(built.residuals));
  }
}

Activations Network::input(const at::Tensor& tile) const { return spatial::DistTensor{tile, images_}; }

Activations Network::run(Activations x, std::size_t first, std::size_t last, const ForwardContext& context) const {
  return layers_.forward(std::move(x), first, last, context);
}

at::Tensor Network::forward(const at::Tensor& tile, const ForwardContext& context) const {
  const Activations y = run(input(tile), 0, layers_.size(), context);
  TORCH_CHECK(std::holds_alternative<at::Tensor>(y), "weft: expected a network that ends in a vector");
  return std::get<at::Tensor>(y);
}

std::vector<std::pair<std::string, SolverResiduals>> Network::solver_residuals() const {
  std::vector<std::pair<std::string, SolverResiduals>> result;
  for (const auto& [name, residuals] : residuals_) result.emplace_back(name, residuals());
  return result;
}

std::vector<Parameter*> Network::parameters(std::size_t layer) const {
  std::vector<Parameter*> result;
  for (const auto& parameter : parameters_[layer]) result.push_back(parameter.get());
  return result;
}

std::vector<Parameter*> Network::parameters() const {
  std::vector<Parameter*> result;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto some = parameters(i);
    result.insert(result.end(), some.begin(), some.end());
  }
  return result;
}

}  // namespace weft::experiment
