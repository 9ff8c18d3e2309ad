#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>

#include "weft/experiment/layer.h"

namespace weft::experiment {

at::Tensor activated(const at::Tensor& x, const LayerSpec& spec) {
  switch (spec.activation) {
    case Activation::kLogistic:
      return at::sigmoid(x);
    case Activation::kRectified:
      return at::relu(x);
    case Activation::kTanh:
      return at::tanh(x);
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kLeakyRectified:
      return at::leaky_relu(x, spec.below);
    case Activation::kElu:
      return at::elu(x, spec.below);
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kSoftplus:
      return at::softplus(x);
    case Activation::kLinear:
      break;
  }
  return x;
}

Flow activated(const Flow& x, const LayerSpec& spec) {
  if (const auto* tiles = std::get_if<spatial::DistTensor>(&x))
    return spatial::DistTensor{activated(tiles->local, spec), tiles->layout};
  return activated(std::get<at::Tensor>(x), spec);
}

}  // namespace weft::experiment
