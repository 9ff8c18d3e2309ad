// A layer of an experiment's network, on tiles.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "weft/experiment/layer_spec.h"
#include "weft/experiment/mesh.h"
#include "weft/experiment/parameter.h"
#include "weft/experiment/sizes.h"
#include "weft/spatial/dist_tensor.h"

namespace weft::experiment {

// What flows between layers: tiles of a field or parts of a vector, or a tensor that every rank of the group has whole.
using Flow = std::variant<spatial::DistTensor, at::Tensor>;

// One run through the network.
struct Pass {
  bool training = false;
  std::uint64_t draw = 0;        // another one for each step: what dropout's mask follows from
  std::int64_t first_image = 0;  // which one of the batch this rank's first is
  std::int64_t images = 0;       // of the whole batch
};

class Layer {
 public:
  virtual ~Layer() = default;

  // Collective over the group's ranks.
  [[nodiscard]] virtual Flow forward(const Flow& x, const Pass& pass) = 0;
  // Behind every update of the parameters.
  virtual void updated() {}
  // In the order of checkpoints.
  [[nodiscard]] virtual std::vector<Parameter>& parameters() { return parameters_; }

 protected:
  std::vector<Parameter> parameters_;
};

using LayerPtr = std::unique_ptr<Layer>;

// What a layer is made from.
struct LayerContext {
  const LayerSpec& spec;
  const LayerSizes& sizes;
  const Mesh& mesh;
  LearningRule rule;
  std::uint64_t seed;
  std::size_t number;
  at::ScalarType type;
  bool outputs_in_parts;  // of a linear layer: another one follows, so nobody needs the whole vector
  spatial::LayoutPtr inputs;
};

// The weights of filters and, where the layer has them, its biases: whole on every rank.
[[nodiscard]] std::vector<Parameter> drawn_filters(const LayerContext& context, const Sizes& shape,
                                                   std::int64_t fan_in);

// `layout` becomes that of the layer's outputs; null where they are whole. Collective.
[[nodiscard]] LayerPtr make_layer(const LayerContext& context, spatial::LayoutPtr& layout);

// Of each kind; layers.cpp chooses.
[[nodiscard]] LayerPtr make_windowed_layer(const LayerContext& context, spatial::LayoutPtr& layout);
[[nodiscard]] LayerPtr make_local_filter(const LayerContext& context, spatial::LayoutPtr& layout);
[[nodiscard]] LayerPtr make_linear(const LayerContext& context, spatial::LayoutPtr& layout);
[[nodiscard]] LayerPtr make_batch_norm(const LayerContext& context);
[[nodiscard]] LayerPtr make_pointwise_layer(const LayerContext& context, spatial::LayoutPtr& layout);
[[nodiscard]] LayerPtr make_residual_stack(const LayerContext& context, spatial::LayoutPtr& layout);
[[nodiscard]] LayerPtr make_residual_block(const LayerContext& context, spatial::LayoutPtr& layout);
[[nodiscard]] LayerPtr make_resizing_layer(const LayerContext& context, spatial::LayoutPtr& layout);
[[nodiscard]] LayerPtr make_normalization(const LayerContext& context, spatial::LayoutPtr& layout);

// The activation that a layer's description names.
[[nodiscard]] at::Tensor activated(const at::Tensor& x, const LayerSpec& spec);
// The same function of what every rank has of `x`.
[[nodiscard]] Flow activated(const Flow& x, const LayerSpec& spec);
// The tiles; throws (TORCH_CHECK) naming the layer where there are none.
[[nodiscard]] const spatial::DistTensor& tiles_of(const Flow& x, const std::string& layer);

}  // namespace weft::experiment
