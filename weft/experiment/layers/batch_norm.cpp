// Batch normalization with the statistics of the whole batch. Several ranks may hold its images and tiles.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include "weft/collective/all_reduce.h"
#include "weft/experiment/file/layer_type.h"
#include "weft/experiment/layers/layer_context.h"
#include "weft/spatial/normalization.h"
#include "weft/spatial/share.h"

namespace weft::experiment {
namespace {

using at::Tensor;
using spatial::DistTensor;
using spatial::nn::Activations;
using spatial::nn::ForwardContext;

constexpr double kMomentum = 0.1;
constexpr double kEpsilon = 1e-5;

class BatchNorm final : public spatial::nn::Layer {
 public:
  explicit BatchNorm(const LayerContext& context) : mesh_(context.mesh) {
    const auto options = at::TensorOptions().dtype(context.type);
    const std::int64_t count = context.sizes.in.maps;
    // If ranks hold parts of a vector, each rank holds the statistics of its part.
    const bool parts = context.sizes.in.shape.empty() && context.inputs;
    const partition::Box part = parts ? context.inputs->tile() : partition::Box::whole({count});
    const auto add = [&](const char* name, const Tensor& value, bool trained) {
      parameters_.push_back(spatial::nn::cut_parameter(context.spec.name + name, value, part));
      parameters_.back().trained = trained;
      parameters_.back().value.set_requires_grad(trained);
    };
    add(".weight", at::ones({count}, options), true);
    add(".bias", at::zeros({count}, options), true);
    add(".running_mean", at::zeros({count}, options), false);
    add(".running_var", at::ones({count}, options), false);
  }

  Activations forward(const Activations& x, const ForwardContext& context) override {
    const auto* tiles = std::get_if<DistTensor>(&x);
    const bool field = tiles != nullptr && tiles->dims() > 1;
    const Tensor& local = tiles != nullptr ? tiles->local : std::get<Tensor>(x);
    Tensor y;
    const bool single = !field && local.size(0) == 1;  // torch divides by the count minus 1
    if (context.training && (mesh_.shards()->size() > 1 || single)) {
      y = normalized_over_shards(local, field ? tiles->layout : nullptr, context.images);
    } else if (field) {
      y = spatial::batch_norm(*tiles, value(0), value(1), value(2), value(3), context.training, kMomentum, kEpsilon)
              .local;
    } else {
      y = at::batch_norm(local, value(0), value(1), value(2), value(3), context.training, kMomentum, kEpsilon,
                         /*cudnn_enabled=*/false);
    }
    return tiles != nullptr ? Activations(DistTensor{y, tiles->layout}) : Activations(y);
  }

 private:
  // Ranks without images of the batch take part too.
  Tensor normalized_over_shards(const Tensor& x, const spatial::LayoutPtr& tiles, std::int64_t images) {
    const CommunicatorPtr& comm = tiles ? mesh_.world() : mesh_.shards();
    std::vector<std::int64_t> dims{0};
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
    sizes[1] = -1;
    for (std::int64_t i = 2; i < x.dim(); ++i) dims.push_back(i);
    const auto count = static_cast<double>(images * (tiles ? c10::multiply_integers(tiles->shape()) : 1));
    const Tensor mean = collective::all_reduce(x.sum(dims), comm).div(count);
    const Tensor centred = x.sub(mean.view(sizes));
    const Tensor variance = collective::all_reduce(centred.mul(centred).sum(dims), comm).div(count);
    update(value(2), mean);
    if (count > 1) update(value(3), variance.mul(count / (count - 1)));  // one value has no variance
    std::vector<Tensor> affine{value(0), value(1)};
    if (tiles) affine = spatial::share(affine, tiles->comm());
    const Tensor scale = variance.add(kEpsilon).rsqrt().mul(affine[0]).view(sizes);
    return at::addcmul(affine[1].view(sizes), centred, scale);
  }

  static void update(const Tensor& running, const Tensor& now) {
    const at::NoGradGuard no_grad;
    running.mul_(1 - kMomentum).add_(now.detach(), kMomentum);
  }

  [[nodiscard]] const Tensor& value(std::size_t i) const { return parameters_[i].value; }

  const Mesh& mesh_;
};

class BatchNormSettings final : public LayerSettings {
 public:
  BatchNormSettings(Fields& /*fields*/, LayerListReader& /*lists*/) {}

  [[nodiscard]] Extent output(const LayerSizes& sizes, const LayerProblems& problems) const override {
    if (sizes.in.flat) {
      problems.add("layer '" + problems.name() +
                   "' cannot follow flatten; place it before flatten or after a linear layer");
    }
    return sizes.in;
  }
  [[nodiscard]] std::int64_t parameter_count(const LayerSizes& sizes) const override { return 2 * sizes.in.maps; }
  [[nodiscard]] BuiltLayer build(const LayerContext& context) const override {
    return {std::make_shared<BatchNorm>(context), context.inputs};
  }
};

const RegisterLayerType kBatchNormRegistered(layer_type<BatchNormSettings>("batch_norm"));

}  // namespace
}  // namespace weft::experiment
