#include "weft/spatial/layer_step.h"

#include <ATen/ops/empty_like.h>
#include <torch/enum.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/upsampling.h>

#include "weft/spatial/adaptive_pooling.h"
#include "weft/spatial/convolution.h"
#include "weft/spatial/dropout_step.h"
#include "weft/spatial/interpolation.h"
#include "weft/spatial/normalization_step.h"
#include "weft/spatial/pooling.h"

namespace weft::spatial {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using Sizes = std::vector<std::int64_t>;

template <std::size_t D>
Sizes sizes(const torch::ExpandingArray<D>& values) {
  return Sizes(values->begin(), values->end());
}

template <class Module>
Run elementwise(const std::shared_ptr<Module>& module) {
  const auto apply = [module](const Tensor& x) { return x.is_meta() ? x : module->forward(x); };
  return [apply](const Flow& x) -> Flow {
    if (const auto* whole = std::get_if<Tensor>(&x)) return apply(*whole);
    if (const auto* flat = std::get_if<Flattened>(&x)) {
      return Flattened{{apply(flat->tiles.local), flat->tiles.layout}};
    }
    const auto& tiles = std::get<DistTensor>(x);
    return DistTensor{apply(tiles.local), tiles.layout};
  };
}

template <std::size_t D, class Options>
ConvolutionOptions convolution_options(const Options& given, const Tensor& weight) {
  ConvolutionOptions options{sizes<D>(given.stride()), {0}, {}, sizes<D>(given.dilation()), given.groups()};
  const std::string mode = torch::enumtype::get_enum_name(given.padding_mode()).substr(1);  // "kZeros"
  options.border = partition::parse_border(std::string(1, static_cast<char>(std::tolower(mode[0]))) + mode.substr(1));
  if (const auto* numbers = std::get_if<torch::ExpandingArray<D>>(&given.padding()))
    options.padding = sizes<D>(*numbers);
  if (!std::holds_alternative<torch::enumtype::kSame>(given.padding())) return options;
  options.padding.clear();
  for (std::size_t i = 0; i < D; ++i) {
    const std::int64_t total = options.dilation[i] * (weight.size(static_cast<std::int64_t>(i) + 2) - 1);
    options.padding.push_back(total / 2);
    options.padding_behind.push_back(total - total / 2);
  }
  return options;
}

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
        {sizes<D>(m.options.stride()), sizes<D>(padding), sizes<D>(m.options.output_padding()),
         sizes<D>(m.options.dilation()), m.options.groups()});
  });
}

template <std::size_t D, class Module>
Run max_pool_step(const ModulePtr& module) {
  const auto pool = std::dynamic_pointer_cast<Module>(module);
  if (!pool) return nullptr;
  return on_tiles(pool, [](Module& m, const DistTensor& x) -> Flow {
    const auto& o = m.options;
    return max_pool(x, {sizes<D>(o.kernel_size()), sizes<D>(o.stride()), sizes<D>(o.padding()), sizes<D>(o.dilation()),
                        o.ceil_mode(), true, std::nullopt});
  });
}

template <std::size_t D, class Module>
Run average_pool_step(const ModulePtr& module) {
  const auto pool = std::dynamic_pointer_cast<Module>(module);
  if (!pool) return nullptr;
  return on_tiles(pool, [](Module& m, const DistTensor& x) -> Flow {
    const auto& o = m.options;
    PoolingOptions options{sizes<D>(o.kernel_size()), sizes<D>(o.stride()), sizes<D>(o.padding()), {1}, o.ceil_mode(),
                           o.count_include_pad(),     std::nullopt};
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
    return norm_pool(x, o.norm_type(),
                     {sizes<D>(o.kernel_size()), sizes<D>(o.stride()), {0}, {1}, o.ceil_mode(), true, std::nullopt});
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

template <class Module>
Run elementwise_step(const ModulePtr& module) {
  const auto activation = std::dynamic_pointer_cast<Module>(module);
  return activation ? elementwise(activation) : nullptr;
}

template <class... Modules>
Run first_elementwise(const ModulePtr& module) {
  Run run;
  static_cast<void>(((run = elementwise_step<Modules>(module)) || ...));
  return run;
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
    &first_elementwise<nn::ReLUImpl, nn::ReLU6Impl, nn::LeakyReLUImpl, nn::ELUImpl, nn::SELUImpl, nn::GELUImpl,
                       nn::SiLUImpl, nn::MishImpl, nn::CELUImpl, nn::HardtanhImpl, nn::SigmoidImpl, nn::TanhImpl,
                       nn::SoftplusImpl, nn::SoftsignImpl, nn::LogSigmoidImpl, nn::IdentityImpl>,
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
