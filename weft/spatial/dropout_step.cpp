#include "weft/spatial/dropout_step.h"

#include <torch/nn/modules/dropout.h>

#include "weft/spatial/dropout.h"

namespace weft::spatial {
namespace {

namespace nn = torch::nn;

// Apart enough for the seeds of neighbouring layers' calls not to meet.
constexpr std::int64_t kCall = 7919;

DistTensor dropped(const DistTensor& x, double p, std::int64_t seed, bool channels) {
  return x.local.is_meta() ? x : dropout(x, p, seed, channels);
}

template <class Module>
Run step(const ModulePtr& module, std::int64_t seed, bool channels) {
  const auto layer = std::dynamic_pointer_cast<Module>(module);
  if (!layer) return nullptr;
  return [layer, seed, channels, calls = std::int64_t{0}](const Flow& x) mutable -> Flow {
    const double p = layer->options.p();
    if (!layer->is_training() || p == 0) return x;
    const std::int64_t now = seed + kCall * ++calls;
    if (const auto* tiles = std::get_if<DistTensor>(&x)) return dropped(*tiles, p, now, channels);
    if (const auto* flat = std::get_if<Flattened>(&x)) return Flattened{dropped(flat->tiles, p, now, channels)};
    return dropout(std::get<at::Tensor>(x), p, now);
  };
}

}  // namespace

Run dropout_step(const ModulePtr& module, std::int64_t seed) {
  if (Run run = step<nn::DropoutImpl>(module, seed, false)) return run;
  if (Run run = step<nn::Dropout2dImpl>(module, seed, true)) return run;
  return step<nn::Dropout3dImpl>(module, seed, true);
}

}  // namespace weft::spatial
