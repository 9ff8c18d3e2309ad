#include "weft/spatial/normalization_step.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/normalization.h>

#include "weft/spatial/normalization.h"

namespace weft::spatial {
namespace {

namespace nn = torch::nn;

template <class Module>
Run batch_norm_step(const ModulePtr& module) {
  const auto norm = std::dynamic_pointer_cast<Module>(module);
  if (!norm) return nullptr;
  return on_tiles(norm, [](Module& m, const DistTensor& x) -> Flow {
    const bool counts = m.is_training() && m.num_batches_tracked.defined() && !x.local.is_meta();
    if (counts) m.num_batches_tracked.add_(1);
    const double average = m.options.momentum() ? *m.options.momentum()
                           : counts             ? 1.0 / m.num_batches_tracked.template item<double>()
                                                : 0;
    return batch_norm(x, matching_or_none(m.weight, x.local), matching_or_none(m.bias, x.local),
                      matching_or_none(m.running_mean, x.local), matching_or_none(m.running_var, x.local),
                      m.is_training(), average, m.options.eps());
  });
}

Run group_norm_step(const ModulePtr& module) {
  const auto norm = std::dynamic_pointer_cast<nn::GroupNormImpl>(module);
  if (!norm) return nullptr;
  return on_tiles(norm, [](nn::GroupNormImpl& m, const DistTensor& x) -> Flow {
    return group_norm(x, m.options.num_groups(), matching_or_none(m.weight, x.local), matching_or_none(m.bias, x.local),
                      m.options.eps());
  });
}

Run layer_norm_step(const ModulePtr& module) {
  const auto norm = std::dynamic_pointer_cast<nn::LayerNormImpl>(module);
  if (!norm) return nullptr;
  return on_tiles(norm, [](nn::LayerNormImpl& m, const DistTensor& x) -> Flow {
    return layer_norm(x, m.options.normalized_shape(), matching_or_none(m.weight, x.local),
                      matching_or_none(m.bias, x.local), m.options.eps());
  });
}

}  // namespace

Run normalization_step(const ModulePtr& module) {
  using Maker = Run (*)(const ModulePtr&);
  for (const Maker make :
       {Maker{&batch_norm_step<nn::BatchNorm1dImpl>}, Maker{&batch_norm_step<nn::BatchNorm2dImpl>},
        Maker{&batch_norm_step<nn::BatchNorm3dImpl>}, Maker{&group_norm_step}, Maker{&layer_norm_step}}) {
    if (Run run = make(module)) return run;
  }
  return nullptr;
}

}  // namespace weft::spatial
