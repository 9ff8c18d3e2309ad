#include <ATen/ops/batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "weft/experiment/layer.h"
#include "weft/partition/scramble.h"
#include "weft/spatial/adaptive_pooling.h"
#include "weft/spatial/dropout.h"
#include "weft/spatial/normalization.h"

namespace weft::experiment {
namespace {

using spatial::DistTensor;

class ActivationLayer final : public Layer {
 public:
  explicit ActivationLayer(Activation activation) : activation_(activation) {}
  Flow forward(const Flow& x, const Pass& /*pass*/) override { return activated(x, activation_); }

 private:
  Activation activation_;
};

class DropoutLayer final : public Layer {
 public:
  explicit DropoutLayer(const LayerContext& context)
      : probability_(context.spec.probability), seed_(context.seed + context.number) {}

  Flow forward(const Flow& x, const Pass& pass) override {
    if (!pass.training || probability_ == 0) return x;
    const auto seed = static_cast<std::int64_t>(partition::scramble(partition::scramble(seed_) + pass.draw) >> 1);
    if (const auto* tiles = std::get_if<DistTensor>(&x)) return spatial::dropout(*tiles, probability_, seed);
    return spatial::dropout(std::get<at::Tensor>(x), probability_, seed);
  }

 private:
  double probability_;
  std::uint64_t seed_;
};

class BatchNormLayer final : public Layer {
 public:
  explicit BatchNormLayer(const LayerContext& context) {
    const auto options = at::TensorOptions().dtype(context.type);
    const std::int64_t count = context.sizes.in.maps;
    // The features of a vector in parts are a rank's own.
    const bool parts = context.sizes.in.shape.empty() && context.inputs;
    const partition::Box part = parts ? context.inputs->tile() : partition::Box::whole({count});
    const auto add = [&](const char* name, const at::Tensor& value, bool trained) {
      parameters_.push_back(cut_parameter(context.spec.name + name, value, part, context.rule));
      parameters_.back().trained = trained;
      parameters_.back().value.set_requires_grad(trained);
    };
    add(".weight", at::ones({count}, options), true);
    add(".bias", at::zeros({count}, options), true);
    add(".running_mean", at::zeros({count}, options), false);
    add(".running_var", at::ones({count}, options), false);
  }

  Flow forward(const Flow& x, const Pass& pass) override {
    const auto* tiles = std::get_if<DistTensor>(&x);
    if (tiles != nullptr && tiles->dims() > 1) {
      return spatial::batch_norm(*tiles, value(0), value(1), value(2), value(3), pass.training, kAverage, kEpsilon);
    }
    const at::Tensor& local = tiles ? tiles->local : std::get<at::Tensor>(x);
    const at::Tensor y = at::batch_norm(local, value(0), value(1), value(2), value(3), pass.training, kAverage,
                                        kEpsilon, /*cudnn_enabled=*/false);
    return tiles ? Flow(DistTensor{y, tiles->layout}) : Flow(y);
  }

 private:
  static constexpr double kAverage = 0.1;
  static constexpr double kEpsilon = 1e-5;
  [[nodiscard]] const at::Tensor& value(std::size_t i) const { return parameters_[i].value; }
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

at::Tensor activated(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kLogistic:
      return at::sigmoid(x);
    case Activation::kRectified:
      return at::relu(x);
    case Activation::kTanh:
      return at::tanh(x);
    case Activation::kLinear:
      break;
  }
  return x;
}

Flow activated(const Flow& x, Activation activation) {
  if (const auto* tiles = std::get_if<DistTensor>(&x))
    return DistTensor{activated(tiles->local, activation), tiles->layout};
  return activated(std::get<at::Tensor>(x), activation);
}

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
      return std::make_unique<BatchNormLayer>(context);
    case LayerKind::kGlobalAverage:
      layout = nullptr;
      return std::make_unique<GlobalAverageLayer>(context.spec.name);
    default:
      return std::make_unique<ActivationLayer>(context.spec.activation);
  }
}

}  // namespace weft::experiment
