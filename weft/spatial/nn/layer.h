// A layer on tiles: the base of parallelize()'s networks and of the networks of experiments.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "weft/partition/window.h"
#include "weft/spatial/dist_tensor.h"
#include "weft/spatial/nn/parameter.h"

namespace weft::spatial::nn {

// Tiles that a linear layer reads as a vector. The values stay in place.
struct Flattened {
  DistTensor tiles;
};

// The values between two layers: tiles of a field (or parts of a vector), flattened tiles, or a tensor that every rank
// holds whole.
using Activations = std::variant<DistTensor, Flattened, at::Tensor>;

// Returns the tiles. Throws (TORCH_CHECK) an error that names `layer` if `x` is not tiled.
[[nodiscard]] const DistTensor& tiles_of(const Activations& x, const std::string& layer);

// Applies `function` to this rank's part of `x`. It must preserve the shape.
[[nodiscard]] Activations map_local(const Activations& x, const std::function<at::Tensor(const at::Tensor&)>& function);

// A forward pass: training or evaluation, and the position of this rank's images in the batch.
struct ForwardContext {
  bool training = false;
  std::uint64_t step = 0;        // differs between training steps; dropout derives its masks from it
  std::int64_t first_image = 0;  // position in the batch of this rank's first image
  std::int64_t images = 0;       // images of the whole batch
};

// A layer as a halo region runs it.
struct RegionPart {
  std::vector<partition::Window> windows;  // by dimension; empty for elementwise layers
  double fill = 0;                         // value of the cells outside the field
  std::vector<at::Tensor> weights;
  std::int64_t channels = 0;  // channels of the output; 0 if the layer keeps their number
  std::function<at::Tensor(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                           const std::vector<std::int64_t>& native_padding)>
      apply;

  // Returns true if the layer needs a halo on tiles of `layout`.
  [[nodiscard]] bool exchanges(const LayoutPtr& layout) const;
};

class Layer {
 public:
  virtual ~Layer() = default;

  // Collective over the ranks that hold tiles of `x`.
  [[nodiscard]] virtual Activations forward(const Activations& x, const ForwardContext& context) = 0;
  // Called after each optimizer step.
  virtual void after_update() {}
  // Returns the parameters in the order of checkpoints. The tensors are the layer's own.
  [[nodiscard]] virtual std::vector<Parameter> parameters() const { return parameters_; }
  // Returns the layer's part in a halo region over `dims` dimensions; none if the layer ends a region.
  [[nodiscard]] virtual std::optional<RegionPart> region_part(std::size_t /*dims*/) const { return std::nullopt; }

  void set_parameters(std::vector<Parameter> parameters) { parameters_ = std::move(parameters); }

 protected:
  std::vector<Parameter> parameters_;
};

using LayerPtr = std::shared_ptr<Layer>;

// Layers in sequence.
class Sequential final : public Layer {
 public:
  Sequential() = default;
  explicit Sequential(std::vector<LayerPtr> layers) : layers_(std::move(layers)) {}

  [[nodiscard]] Activations forward(const Activations& x, const ForwardContext& context) override;
  // Runs the layers [first, last).
  [[nodiscard]] Activations forward(Activations x, std::size_t first, std::size_t last,
                                    const ForwardContext& context) const;
  void after_update() override;
  [[nodiscard]] std::vector<Parameter> parameters() const override;

  void append(LayerPtr layer) { layers_.push_back(std::move(layer)); }
  [[nodiscard]] std::size_t size() const noexcept { return layers_.size(); }
  [[nodiscard]] Layer& operator[](std::size_t i) const { return *layers_[i]; }

 private:
  std::vector<LayerPtr> layers_;
};

}  // namespace weft::spatial::nn
