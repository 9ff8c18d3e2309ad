#include "weft/experiment/training/pretraining.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "weft/collective/all_reduce.h"
#include "weft/collective/autograd/backward.h"
#include "weft/spatial/loss.h"

namespace weft::experiment {
namespace {

using at::Tensor;
using spatial::DistTensor;

LocalFilter& filter_at(Network& network, std::size_t layer) {
  auto* filter = dynamic_cast<LocalFilter*>(&network.layer(layer));
  TORCH_CHECK(filter != nullptr, "weft: layer ", layer, " is not a local filter; only local filters can be pretrained");
  return *filter;
}

Tensor leaf(const Tensor& x) { return x.detach().set_requires_grad(true); }

}  // namespace

Pretrainer::Pretrainer(Network& network, std::size_t layer, const Mesh& mesh)
    : network_(network), layer_(layer), mesh_(mesh), filter_(filter_at(network, layer)) {
  if (filter_.settings().tied_weights) return;
  decoder_ = Parameter{filter_.parameters().front(), {}};
  decoder_->name = filter_.name() + ".decoder";
  copy_filter();
}

void Pretrainer::copy_filter() {
  if (decoder_) decoder_->value = filter_.weights().detach().clone();
}

const Tensor& Pretrainer::decoding_weights() const { return decoder_ ? decoder_->value : filter_.weights(); }

DistTensor Pretrainer::input_of(const Tensor& tile) const {
  const at::NoGradGuard no_grad;
  return spatial::nn::tiles_of(network_.run(network_.input(tile), 0, layer_, {}), filter_.name());
}

DistTensor Pretrainer::reconstruction(const DistTensor& x) const {
  const at::NoGradGuard no_grad;
  return filter_.decode(filter_.encode(x, filter_.weights()), decoding_weights());
}

Tensor Pretrainer::summed(const Tensor& gradient) const {
  const at::NoGradGuard no_grad;
  return mesh_.shards()->size() == 1 ? gradient : collective::all_reduce(gradient, mesh_.shards());
}

void Pretrainer::update(Tensor& weights, const Tensor& gradient) const {
  const at::NoGradGuard no_grad;
  weights.detach().sub_(gradient, filter_.settings().pretrain_rate);
  LocalFilter::normalize(weights, filter_.outputs()->dims());
}

double Pretrainer::step(const data::Batch& batch) {
  const DistTensor x = input_of(batch.images);
  // Creates two leaves even for tied weights: each use has its own gradient and its own update.
  const Tensor encoding = leaf(filter_.weights());
  const Tensor decoding = leaf(decoding_weights());
  const DistTensor y = filter_.encode(x, encoding);
  const DistTensor back = filter_.decode(y, decoding);
  const Tensor difference = back.local.sub(x.local);
  Tensor cost = spatial::sum(DistTensor{difference.mul(difference), x.layout}).mul(0.5);
  if (filter_.settings().sparsity > 0) {
    const Activations pooled = network_.layer(layer_ + 1).forward(y, {.training = true});
    cost = cost.add(spatial::sum(std::get<DistTensor>(pooled)), filter_.settings().sparsity);
  }
  cost = cost.div(static_cast<double>(batch.whole_size));
  const auto gradients = collective::grad(cost, {decoding, encoding});
  Tensor& decoder = decoder_ ? decoder_->value : filter_.weights();
  update(decoder, summed(gradients[0]));
  update(filter_.weights(), summed(gradients[1]));
  return cost.item<double>();
}

}  // namespace weft::experiment
