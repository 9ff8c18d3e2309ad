#include "weft/spatial/nn/layers.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>

#include <limits>

#include "weft/collective/reduce_scatter.h"
#include "weft/spatial/convolution/kernel.h"
#include "weft/spatial/dropout.h"
#include "weft/spatial/linear.h"

namespace weft::spatial::nn {
namespace {

using at::Tensor;
using Sizes = std::vector<std::int64_t>;

class FunctionLayer final : public Layer {
 public:
  explicit FunctionLayer(std::function<Activations(const Activations&, const ForwardContext&)> function)
      : function_(std::move(function)) {}
  Activations forward(const Activations& x, const ForwardContext& context) override { return function_(x, context); }

 private:
  std::function<Activations(const Activations&, const ForwardContext&)> function_;
};

class Convolution final : public Layer {
 public:
  Convolution(Tensor weight, OptionalTensor bias, ConvolutionOptions options)
      : weight_(std::move(weight)), bias_(std::move(bias)), options_(std::move(options)) {}

  Activations forward(const Activations& x, const ForwardContext& /*context*/) override {
    const DistTensor& tiles = tiles_of(x, "a convolution");
    return spatial::convolution(tiles, matching(weight_, tiles.local), matching(bias_, tiles.local), options_);
  }

  [[nodiscard]] std::optional<RegionPart> region_part(std::size_t dims) const override {
    const bool fits =
        options_.border == partition::Border::kZeros && weight_.dim() == static_cast<std::int64_t>(dims) + 2;
    if (!fits) return std::nullopt;
    RegionPart part{windows_of(dims, weight_, options_), 0, {weight_}, weight_.size(0), nullptr};
    if (bias_) part.weights.push_back(*bias_);
    part.apply = [options = options_](const Tensor& x, const std::vector<Tensor>& weights, const Sizes& padding) {
      const auto bias = weights.size() > 1 ? OptionalTensor(weights[1]) : std::nullopt;
      return Kernel{weights[0], bias, options.stride, padding, options.dilation, options.groups}.apply(x);
    };
    return part;
  }

 private:
  Tensor weight_;
  OptionalTensor bias_;
  ConvolutionOptions options_;
};

class MaxPool final : public Layer {
 public:
  explicit MaxPool(PoolingOptions options) : options_(std::move(options)) {}

  Activations forward(const Activations& x, const ForwardContext& /*context*/) override {
    return spatial::max_pool(tiles_of(x, "max pooling"), options_);
  }

  [[nodiscard]] std::optional<RegionPart> region_part(std::size_t dims) const override {
    if (options_.kernel.size() != dims) return std::nullopt;
    const auto windows = windows_of(dims, options_);
    return RegionPart{
        windows,
        -std::numeric_limits<double>::infinity(),
        {},
        0,
        [windows](const Tensor& x, const auto&, const Sizes& padding) { return largest(x, windows, padding); }};
  }

 private:
  PoolingOptions options_;
};

class Elementwise final : public Layer {
 public:
  explicit Elementwise(std::function<Tensor(const Tensor&)> function) : function_(std::move(function)) {}

  Activations forward(const Activations& x, const ForwardContext& /*context*/) override {
    return map_local(x, function_);
  }

  [[nodiscard]] std::optional<RegionPart> region_part(std::size_t /*dims*/) const override {
    return RegionPart{{}, 0, {}, 0, [f = function_](const Tensor& x, const auto&, const Sizes&) { return f(x); }};
  }

 private:
  std::function<Tensor(const Tensor&)> function_;
};

class Dropout final : public Layer {
 public:
  Dropout(double p, std::uint64_t seed, bool whole_channels) : p_(p), seed_(seed), whole_channels_(whole_channels) {}

  Activations forward(const Activations& x, const ForwardContext& context) override {
    if (!context.training || p_ == 0) return x;
    const std::int64_t seed = mask_seed(seed_, context.step);
    const auto dropped = [&](const DistTensor& tiles) {
      return tiles.local.is_meta() ? tiles : spatial::dropout(tiles, p_, seed, whole_channels_, context.first_image);
    };
    if (const auto* tiles = std::get_if<DistTensor>(&x)) return dropped(*tiles);
    if (const auto* flat = std::get_if<Flattened>(&x)) return Flattened{dropped(flat->tiles)};
    return spatial::dropout(std::get<Tensor>(x), p_, seed, context.first_image);
  }

 private:
  double p_;
  std::uint64_t seed_;
  bool whole_channels_;
};

class Linear final : public Layer {
 public:
  Linear(Tensor weight, OptionalTensor bias, LayoutPtr outputs)
      : weight_(std::move(weight)), bias_(std::move(bias)), outputs_(std::move(outputs)) {}

  Activations forward(const Activations& x, const ForwardContext& /*context*/) override {
    if (const auto* whole = std::get_if<Tensor>(&x)) return at::linear(whole->flatten(1), weight_.flatten(1), bias_);
    const auto* flat = std::get_if<Flattened>(&x);
    const DistTensor& tiles = flat != nullptr ? flat->tiles : std::get<DistTensor>(x);
    const Tensor weight = matching(weight_, tiles.local);
    const OptionalTensor bias = matching(bias_, tiles.local);
    if (!outputs_) return spatial::linear(tiles, weight, bias);
    tiles.validate();
    const Tensor partial = at::linear(tiles.local.flatten(1), weight.flatten(1));
    Tensor mine = collective::reduce_scatter(partial, outputs_->comm(), mpi::ReduceOp::kSum, 1);
    if (bias) mine = mine.add(*bias);
    return DistTensor{mine, outputs_};
  }

 private:
  Tensor weight_;
  OptionalTensor bias_;
  LayoutPtr outputs_;
};

}  // namespace

LayerPtr function_layer(std::function<Activations(const Activations&, const ForwardContext&)> function) {
  return std::make_shared<FunctionLayer>(std::move(function));
}

LayerPtr on_tiles(std::string name, std::function<Activations(const DistTensor&)> function) {
  return function_layer([name = std::move(name), function = std::move(function)](
                            const Activations& x, const ForwardContext&) { return function(tiles_of(x, name)); });
}

LayerPtr convolution(const Tensor& weight, const OptionalTensor& bias, const ConvolutionOptions& options) {
  return std::make_shared<Convolution>(weight, bias, options);
}

LayerPtr transposed_convolution(const Tensor& weight, const OptionalTensor& bias,
                                const TransposedConvolutionOptions& options) {
  return on_tiles("a transposed convolution", [=](const DistTensor& x) {
    return spatial::transposed_convolution(x, matching(weight, x.local), matching(bias, x.local), options);
  });
}

LayerPtr max_pool(const PoolingOptions& options) { return std::make_shared<MaxPool>(options); }

LayerPtr elementwise(std::function<Tensor(const Tensor&)> function) {
  return std::make_shared<Elementwise>(std::move(function));
}

LayerPtr dropout(double p, std::uint64_t seed, bool whole_channels) {
  return std::make_shared<Dropout>(p, seed, whole_channels);
}

LayerPtr linear(const Tensor& weight, const OptionalTensor& bias, const LayoutPtr& outputs) {
  return std::make_shared<Linear>(weight, bias, outputs);
}

Tensor matching(const Tensor& weight, const Tensor& x) {
  return x.is_meta() ? at::empty_like(weight.detach(), weight.options().device(at::kMeta)) : weight;
}

OptionalTensor matching(const OptionalTensor& weight, const Tensor& x) {
  return weight ? OptionalTensor(matching(*weight, x)) : std::nullopt;
}

}  // namespace weft::spatial::nn
