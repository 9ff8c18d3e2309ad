#include "weft/spatial/layer_step.h"

#include <ATen/ops/empty_like.h>
#include <torch/enum.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/upsampling.h>

#include "weft/spatial/adaptive_pooling.h"
#include "weft/spatial/convolution.h"
#include "weft/spatial/dropout_step.h"
#include "weft/spatial/elementwise.h"
#include "weft/spatial/interpolation.h"
#include "weft/spatial/layer_options.h"
#include "weft/spatial/normalization_step.h"
#include "weft/spatial/pooling.h"

namespace weft::spatial {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using Sizes = std::vector<std::int64_t>;

template <std::size_t D, class Module>
Run convolution_step(const ModulePtr& module) {
  const auto conv = std::dynamic_pointer_cast<Module>(module);
  if (!conv) return nullptr;
  return on_tiles(conv, [](Module& m, const DistTensor& x) -> Flow {
    return convolution(x, matching(m.weight, x.local), matching_or_none(m.bias, x.local),
                       convolution_options<D>(m.options, m.weight));
  });
}

template <std::size_t D, class Module>
Run transposed_step(const ModulePtr& module) {
  const auto conv = std::dynamic_pointer_cast<Module>(module);
  if (!conv) return nullptr;
  return on_tiles(conv, [](Module& m, const DistTensor& x) -> Flow {
    const auto& padding = std::get<torch::ExpandingArray<D>>(m.options.padding());
    return transposed_convolution(
        x, matching(m.weight, x.local), matching_or_none(m.bias, x.local),
        {sizes_of<D>(m.options.stride()), sizes_of<D>(padding), sizes_of<D>(m.options.output_padding()),
         sizes_of<D>(m.options.dilation()), m.options.groups()});
  });
}

template <std::size_t D, class Module>
Run max_pool_step(const ModulePtr& module) {
  const auto pool = std::dynamic_pointer_cast<Module>(module);
  if (!pool) return nullptr;
  return on_tiles(pool,
                  [](Module& m, const DistTensor& x) -> Flow { return max_pool(x, max_pool_options<D>(m.options)); });
}

template <std::size_t D, class Module>
Run average_pool_step(const ModulePtr& module) {
  const auto pool = std::dynamic_pointer_cast<Module>(module);
  if (!pool) return nullptr;
  return on_tiles(pool, [](Module& m, const DistTensor& x) -> Flow {
    const auto& o = m.options;
    PoolingOptions options{sizes_of<D>(o.kernel_size()),
                           sizes_of<D>(o.stride()),
                           sizes_of<D>(o.padding()),
                           {1},
                           o.ceil_mode(),
                           o.count_include_pad(),
                           std::nullopt};
    if constexpr (D > 1) options.divisor = o.divisor_override();
    return average_pool(x, options);
  });
}

template <std::size_t D, class Module>
Run norm_pool_step(const ModulePtr& module) {
  const auto pool = std::dynamic_pointer_cast<Module>(module);
  if (!pool) return nullptr;
  return on_tiles(pool, [](Module& m, const DistTensor& x) -> Flow {
    const auto& o = m.options;
    return norm_pool(
        x, o.norm_type(),
        {sizes_of<D>(o.kernel_size()), sizes_of<D>(o.stride()), {0}, {1}, o.ceil_mode(), true, std::nullopt});
  });
}

enum class Pooled { kAverage, kMaximum };

template <std::size_t D, class Module, Pooled kPooled = Pooled::kAverage>
Run adaptive_step(const ModulePtr& module) {
  const auto pool = std::dynamic_pointer_cast<Module>(module);
  if (!pool) return nullptr;
  return on_tiles(pool, [](Module& m, const DistTensor& x) -> Flow {
    Sizes outputs;
    for (std::size_t i = 0; i < D; ++i) {
      std::optional<std::int64_t> wanted;
      if constexpr (D == 1) {
        wanted = (*m.options.output_size())[i];
      } else {
        wanted = (*m.options.output_size())[i];
      }
      outputs.push_back(wanted.value_or(x.layout->shape()[i]));
    }
    if constexpr (kPooled == Pooled::kMaximum) {
      if (outputs == Sizes(D, 1)) return global_max_pool(x);
      return adaptive_max_pool(x, outputs);
    }
    if (outputs == Sizes(D, 1)) return global_average_pool(x);
    return adaptive_average_pool(x, outputs);
  });
}

Run upsample_step(const ModulePtr& module) {
  const auto upsample = std::dynamic_pointer_cast<nn::UpsampleImpl>(module);
  if (!upsample) return nullptr;
  return on_tiles(upsample, [](nn::UpsampleImpl& m, const DistTensor& x) -> Flow {
    const std::string mode = torch::enumtype::get_enum_name(m.options.mode()).substr(1);
    const Resampling resampling = mode == "Nearest" ? Resampling::kNearest : Resampling::kLinear;
    TORCH_CHECK_NOT_IMPLEMENTED(mode == "Nearest" || mode.find("inear") != std::string::npos,
                                "weft: interpolation of tiles has no ", mode);
    const bool corners = m.options.align_corners().value_or(false);
    if (m.options.size()) return interpolate(x, *m.options.size(), resampling, corners);
    Sizes outputs;
    std::vector<double> scales = *m.options.scale_factor();
    if (scales.size() == 1) scales.resize(x.dims(), scales[0]);
    for (std::size_t i = 0; i < x.dims(); ++i) {
      outputs.push_back(static_cast<std::int64_t>(static_cast<double>(x.layout->shape()[i]) * scales[i]));
    }
    return interpolate(x, outputs, resampling, corners, scales);
  });
}

Run flatten_step(const ModulePtr& module) {
  const auto flatten = std::dynamic_pointer_cast<nn::FlattenImpl>(module);
  if (!flatten) return nullptr;
  return [flatten](const Flow& x) -> Flow {
    if (const auto* whole = std::get_if<Tensor>(&x)) return flatten->forward(*whole);
    TORCH_CHECK_NOT_IMPLEMENTED(flatten->options.start_dim() == 1 && flatten->options.end_dim() == -1,
                                "weft: tiles are flattened from dimension 1 to the last");
    if (std::holds_alternative<Flattened>(x)) return x;
    return Flattened{std::get<DistTensor>(x)};
  };
}

Run elementwise_step(const ModulePtr& module) {
  const auto apply = elementwise_of(module);
  if (!apply) return nullptr;
  return [apply](const Flow& x) -> Flow {
    if (const auto* whole = std::get_if<Tensor>(&x)) return apply(*whole);
    if (const auto* flat = std::get_if<Flattened>(&x)) {
      return Flattened{{apply(flat->tiles.local), flat->tiles.layout}};
    }
    const auto& tiles = std::get<DistTensor>(x);
    return DistTensor{apply(tiles.local), tiles.layout};
  };
}

using Maker = Run (*)(const ModulePtr&);
constexpr Maker kMakers[] = {
    &convolution_step<1, nn::Conv1dImpl>,
    &convolution_step<2, nn::Conv2dImpl>,
    &convolution_step<3, nn::Conv3dImpl>,
    &transposed_step<1, nn::ConvTranspose1dImpl>,
    &transposed_step<2, nn::ConvTranspose2dImpl>,
    &transposed_step<3, nn::ConvTranspose3dImpl>,
    &max_pool_step<1, nn::MaxPool1dImpl>,
    &max_pool_step<2, nn::MaxPool2dImpl>,
    &max_pool_step<3, nn::MaxPool3dImpl>,
    &average_pool_step<1, nn::AvgPool1dImpl>,
    &average_pool_step<2, nn::AvgPool2dImpl>,
    &average_pool_step<3, nn::AvgPool3dImpl>,
    &adaptive_step<1, nn::AdaptiveAvgPool1dImpl>,
    &adaptive_step<2, nn::AdaptiveAvgPool2dImpl>,
    &adaptive_step<3, nn::AdaptiveAvgPool3dImpl>,
    &adaptive_step<1, nn::AdaptiveMaxPool1dImpl, Pooled::kMaximum>,
    &adaptive_step<2, nn::AdaptiveMaxPool2dImpl, Pooled::kMaximum>,
    &adaptive_step<3, nn::AdaptiveMaxPool3dImpl, Pooled::kMaximum>,
    &norm_pool_step<1, nn::LPPool1dImpl>,
    &norm_pool_step<2, nn::LPPool2dImpl>,
    &normalization_step,
    &upsample_step,
    &flatten_step,
    &elementwise_step,
};

}  // namespace

Tensor matching(const Tensor& weight, const Tensor& x) {
  return x.is_meta() ? at::empty_like(weight.detach(), weight.options().device(at::kMeta)) : weight;
}

std::optional<Tensor> matching_or_none(const Tensor& weight, const Tensor& x) {
  return weight.defined() ? std::optional<Tensor>(matching(weight, x)) : std::nullopt;
}

LayerStep step_of(const std::string& name, const ModulePtr& module, std::int64_t seed) {
  std::string kind = module->name();
  kind = kind.substr(kind.rfind(':') + 1);
  if (Run run = dropout_step(module, seed)) return {name, kind, std::move(run)};
  for (const Maker make : kMakers) {
    if (Run run = make(module)) return {name, kind, std::move(run)};
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "weft: parallelize cannot split '", name, "' (", kind, ")");
}

}  // namespace weft::spatial
