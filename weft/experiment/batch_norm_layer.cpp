// Batch normalisation with the statistics of the whole batch, whose images and tiles several ranks may hold.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include "weft/collective/all_reduce.h"
#include "weft/experiment/layer.h"
#include "weft/spatial/normalization.h"
#include "weft/spatial/share.h"

namespace weft::experiment {
namespace {

using at::Tensor;
using spatial::DistTensor;

constexpr double kAverage = 0.1;
constexpr double kEpsilon = 1e-5;

class BatchNormLayer final : public Layer {
 public:
  explicit BatchNormLayer(const LayerContext& context) : mesh_(context.mesh) {
    const auto options = at::TensorOptions().dtype(context.type);
    const std::int64_t count = context.sizes.in.maps;
    // The features of a vector in parts are a rank's own.
    const bool parts = context.sizes.in.shape.empty() && context.inputs;
    const partition::Box part = parts ? context.inputs->tile() : partition::Box::whole({count});
    const auto add = [&](const char* name, const Tensor& value, bool trained) {
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
    const bool field = tiles != nullptr && tiles->dims() > 1;
    const Tensor& local = tiles != nullptr ? tiles->local : std::get<Tensor>(x);
    Tensor y;
    const bool single = !field && local.size(0) == 1;  // torch's own divides by the count less 1
    if (pass.training && (mesh_.shards()->size() > 1 || single)) {
      y = normalized_over_shards(local, field ? tiles->layout : nullptr, pass.images);
    } else if (field) {
      y = spatial::batch_norm(*tiles, value(0), value(1), value(2), value(3), pass.training, kAverage, kEpsilon).local;
    } else {
      y = at::batch_norm(local, value(0), value(1), value(2), value(3), pass.training, kAverage, kEpsilon,
                         /*cudnn_enabled=*/false);
    }
    return tiles != nullptr ? Flow(DistTensor{y, tiles->layout}) : Flow(y);
  }

 private:
  // Ranks may have no image of the batch: they still take part.
  Tensor normalized_over_shards(const Tensor& x, const spatial::LayoutPtr& tiles, std::int64_t images) {
    const Comm& comm = tiles ? mesh_.world() : mesh_.shards();
    std::vector<std::int64_t> dims{0};
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
    sizes[1] = -1;
    for (std::int64_t i = 2; i < x.dim(); ++i) dims.push_back(i);
    const auto count = static_cast<double>(images * (tiles ? c10::multiply_integers(tiles->shape()) : 1));
    const Tensor mean = collective::all_reduce(x.sum(dims), comm).div(count);
    const Tensor centred = x.sub(mean.view(sizes));
    const Tensor variance = collective::all_reduce(centred.mul(centred).sum(dims), comm).div(count);
    update(value(2), mean);
    if (count > 1) update(value(3), variance.mul(count / (count - 1)));  // a single value tells nothing of it
    std::vector<Tensor> affine{value(0), value(1)};
    if (tiles) affine = spatial::share(affine, tiles->comm());
    const Tensor scale = variance.add(kEpsilon).rsqrt().mul(affine[0]).view(sizes);
    return at::addcmul(affine[1].view(sizes), centred, scale);
  }

  static void update(const Tensor& running, const Tensor& now) {
    const at::NoGradGuard no_grad;
    running.mul_(1 - kAverage).add_(now.detach(), kAverage);
  }

  [[nodiscard]] const Tensor& value(std::size_t i) const { return parameters_[i].value; }

  const Mesh& mesh_;
};

}  // namespace

LayerPtr make_batch_norm(const LayerContext& context) { return std::make_unique<BatchNormLayer>(context); }

}  // namespace weft::experiment
