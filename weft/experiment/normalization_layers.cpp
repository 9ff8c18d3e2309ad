// Normalisation of each image by itself, whose cells several ranks may hold; no other image of the batch counts.
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "weft/experiment/layer.h"
#include "weft/spatial/normalization.h"

namespace weft::experiment {
namespace {

using spatial::DistTensor;

class ImageNormLayer : public Layer {
 public:
  // `shape` is that of the weights.
  ImageNormLayer(const LayerContext& context, const Sizes& shape) : spec_(context.spec) {
    if (!spec_.affine) return;
    const auto options = at::TensorOptions().dtype(context.type);
    parameters_.push_back(whole_parameter(spec_.name + ".weight", at::ones(shape, options), context.rule));
    parameters_.push_back(whole_parameter(spec_.name + ".bias", at::zeros(shape, options), context.rule));
  }

 protected:
  [[nodiscard]] std::optional<at::Tensor> weight() const { return value(0); }
  [[nodiscard]] std::optional<at::Tensor> bias() const { return value(1); }
  [[nodiscard]] const LayerSpec& spec() const noexcept { return spec_; }

 private:
  [[nodiscard]] std::optional<at::Tensor> value(std::size_t i) const {
    return spec_.affine ? std::optional<at::Tensor>(parameters_[i].value) : std::nullopt;
  }

  LayerSpec spec_;
};

// Of groups of maps; each map a group of its own is instance normalisation.
class GroupNormLayer final : public ImageNormLayer {
 public:
  explicit GroupNormLayer(const LayerContext& context)
      : ImageNormLayer(context, {context.sizes.in.maps}),
        groups_(context.spec.kind == LayerKind::kInstanceNorm ? context.sizes.in.maps : context.spec.groups) {}

  Flow forward(const Flow& x, const Pass& /*pass*/) override {
    return spatial::group_norm(tiles_of(x, spec().name), groups_, weight(), bias(), spec().epsilon);
  }

 private:
  std::int64_t groups_;
};

// Over all values of an image.
class LayerNormLayer final : public ImageNormLayer {
 public:
  explicit LayerNormLayer(const LayerContext& context)
      : ImageNormLayer(context, shape_of(context.sizes.in)), shape_(shape_of(context.sizes.in)) {}

  Flow forward(const Flow& x, const Pass& /*pass*/) override {
    if (const auto* tiles = std::get_if<DistTensor>(&x))
      return spatial::layer_norm(*tiles, shape_, weight(), bias(), spec().epsilon);
    return at::layer_norm(std::get<at::Tensor>(x), shape_, weight(), bias(), spec().epsilon);
  }

 private:
  static Sizes shape_of(const Extent& in) {
    Sizes shape{in.maps};
    shape.insert(shape.end(), in.shape.begin(), in.shape.end());
    return shape;
  }

  Sizes shape_;
};

}  // namespace

LayerPtr make_normalization(const LayerContext& context, spatial::LayoutPtr& layout) {
  layout = context.inputs;
  if (context.spec.kind == LayerKind::kLayerNorm) return std::make_unique<LayerNormLayer>(context);
  return std::make_unique<GroupNormLayer>(context);
}

}  // namespace weft::experiment
