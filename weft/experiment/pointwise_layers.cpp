#include <c10/util/Exception.h>

#include "weft/experiment/layer.h"
#include "weft/partition/scramble.h"
#include "weft/spatial/adaptive_pooling.h"
#include "weft/spatial/dropout.h"

namespace weft::experiment {
namespace {

using spatial::DistTensor;

class ActivationLayer final : public Layer {
 public:
  explicit ActivationLayer(const LayerSpec& spec) : spec_(spec) {}
  Flow forward(const Flow& x, const Pass& /*pass*/) override { return activated(x, spec_); }

 private:
  LayerSpec spec_;
};

// A linear layer takes fields as they are; on tiles nothing could be put in a row.
class FlattenLayer final : public Layer {
 public:
  Flow forward(const Flow& x, const Pass& /*pass*/) override { return x; }
};

class DropoutLayer final : public Layer {
 public:
  explicit DropoutLayer(const LayerContext& context)
      : probability_(context.spec.probability), seed_(context.seed + context.number) {}

  Flow forward(const Flow& x, const Pass& pass) override {
    if (!pass.training || probability_ == 0) return x;
    const auto seed = static_cast<std::int64_t>(partition::scramble(partition::scramble(seed_) + pass.draw) >> 1);
    if (const auto* tiles = std::get_if<DistTensor>(&x))
      return spatial::dropout(*tiles, probability_, seed, false, pass.first_image);
    return spatial::dropout(std::get<at::Tensor>(x), probability_, seed, pass.first_image);
  }

 private:
  double probability_;
  std::uint64_t seed_;
};

class GlobalAverageLayer final : public Layer {
 public:
  explicit GlobalAverageLayer(std::string name) : name_(std::move(name)) {}
  Flow forward(const Flow& x, const Pass& /*pass*/) override {
    return spatial::global_average_pool(tiles_of(x, name_)).flatten(1);
  }

 private:
  std::string name_;
};

}  // namespace

const DistTensor& tiles_of(const Flow& x, const std::string& layer) {
  const auto* tiles = std::get_if<DistTensor>(&x);
  TORCH_CHECK(tiles != nullptr, "weft: layer '", layer, "' expects tiles, got a whole tensor");
  return *tiles;
}

LayerPtr make_pointwise_layer(const LayerContext& context, spatial::LayoutPtr& layout) {
  layout = context.inputs;
  switch (context.spec.kind) {
    case LayerKind::kDropout:
      return std::make_unique<DropoutLayer>(context);
    case LayerKind::kBatchNorm:
      return make_batch_norm(context);
    case LayerKind::kGlobalAverage:
      layout = nullptr;
      return std::make_unique<GlobalAverageLayer>(context.spec.name);
    case LayerKind::kFlatten:
      return std::make_unique<FlattenLayer>();
    default:
      return std::make_unique<ActivationLayer>(context.spec);
  }
}

}  // namespace weft::experiment
