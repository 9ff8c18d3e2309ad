#include "weft/experiment/network.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "weft/experiment/description.h"

namespace weft::experiment {
namespace {

bool linear_follows(const std::vector<LayerSpec>& layers, std::size_t i) {
  return std::any_of(layers.begin() + static_cast<std::ptrdiff_t>(i) + 1, layers.end(),
                     [](const LayerSpec& layer) { return layer.kind == LayerKind::kLinear; });
}

}  // namespace

Network::Network(const Experiment& experiment, const Mesh& mesh)
    : images_(mesh.layout(image_extent(experiment.dataset).shape)) {
  Problems problems(experiment.file);
  const auto sizes = layer_sizes(experiment, problems);
  problems.throw_if_any();
  spatial::LayoutPtr layout = images_;
  const auto& specs = experiment.model.layers;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const LayerContext context{specs[i],
                               sizes[i],
                               mesh,
                               specs[i].rule.value_or(experiment.model.rule),
                               experiment.seed,
                               i,
                               experiment.float64 ? at::kDouble : at::kFloat,
                               linear_follows(specs, i),
                               layout};
    layers_.push_back(make_layer(context, layout));
  }
}

Flow Network::input(const at::Tensor& tile) const { return spatial::DistTensor{tile, images_}; }

Flow Network::run(Flow x, std::size_t first, std::size_t last, const Pass& pass) const {
  for (std::size_t i = first; i < last; ++i) x = layers_[i]->forward(x, pass);
  return x;
}

at::Tensor Network::forward(const at::Tensor& tile, const Pass& pass) const {
  const Flow y = run(input(tile), 0, layers_.size(), pass);
  TORCH_CHECK(std::holds_alternative<at::Tensor>(y), "weft: expected a network that ends in a vector");
  return std::get<at::Tensor>(y);
}

void Network::updated() const {
  for (const LayerPtr& layer : layers_) layer->updated();
}

std::vector<Parameter*> Network::parameters(std::size_t layer) const {
  std::vector<Parameter*> result;
  for (Parameter& parameter : layers_[layer]->parameters()) result.push_back(&parameter);
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
