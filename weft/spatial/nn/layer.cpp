#include "weft/spatial/nn/layer.h"

#include <c10/util/Exception.h>

namespace weft::spatial::nn {

const DistTensor& tiles_of(const Activations& x, const std::string& layer) {
  const auto* tiles = std::get_if<DistTensor>(&x);
  TORCH_CHECK_NOT_IMPLEMENTED(tiles != nullptr, "weft: ", layer, " expects tiles, got ",
                              std::holds_alternative<Flattened>(x) ? "flattened tiles" : "a whole tensor");
  return *tiles;
}

Activations map_local(const Activations& x, const std::function<at::Tensor(const at::Tensor&)>& function) {
  if (const auto* whole = std::get_if<at::Tensor>(&x)) return function(*whole);
  if (const auto* flat = std::get_if<Flattened>(&x))
    return Flattened{{function(flat->tiles.local), flat->tiles.layout}};
  const auto& tiles = std::get<DistTensor>(x);
  return DistTensor{function(tiles.local), tiles.layout};
}

Activations Sequential::forward(const Activations& x, const ForwardContext& context) {
  return forward(x, 0, size(), context);
}

Activations Sequential::forward(Activations x, std::size_t first, std::size_t last,
                                const ForwardContext& context) const {
  for (std::size_t i = first; i < last; ++i) x = layers_[i]->forward(x, context);
  return x;
}

void Sequential::after_update() {
  for (const LayerPtr& layer : layers_) layer->after_update();
}

std::vector<Parameter> Sequential::parameters() const {
  std::vector<Parameter> all;
  for (const LayerPtr& layer : layers_) {
    const auto some = layer->parameters();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace weft::spatial::nn
