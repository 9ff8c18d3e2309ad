#include "weft/spatial/elementwise.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

namespace weft::spatial {
namespace {

namespace nn = torch::nn;
using Function = std::function<at::Tensor(const at::Tensor&)>;

template <class Module>
Function function_of(const ModulePtr& module) {
  const auto layer = std::dynamic_pointer_cast<Module>(module);
  if (!layer) return nullptr;
  return [layer](const at::Tensor& x) { return x.is_meta() ? x : layer->forward(x); };
}

template <class... Modules>
Function first_of(const ModulePtr& module) {
  Function function;
  static_cast<void>(((function = function_of<Modules>(module)) || ...));
  return function;
}

}  // namespace

Function elementwise_of(const ModulePtr& module) {
  return first_of<nn::ReLUImpl, nn::ReLU6Impl, nn::LeakyReLUImpl, nn::ELUImpl, nn::SELUImpl, nn::GELUImpl, nn::SiLUImpl,
                  nn::MishImpl, nn::CELUImpl, nn::HardtanhImpl, nn::SigmoidImpl, nn::TanhImpl, nn::SoftplusImpl,
                  nn::SoftsignImpl, nn::LogSigmoidImpl, nn::IdentityImpl>(module);
}

}  // namespace weft::spatial
