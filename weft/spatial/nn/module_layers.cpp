#include "weft/spatial/nn/module_layers.h"

#include <torch/enum.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/upsampling.h>

#include "weft/spatial/adaptive_pooling.h"
#include "weft/spatial/interpolation.h"
#include "weft/spatial/nn/layers.h"
#include "weft/spatial/nn/module_options.h"

namespace weft::spatial::nn {
namespace {

namespace tnn = torch::nn;
using at::Tensor;
using Sizes = std::vector<std::int64_t>;

OptionalTensor if_defined(const Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : std::nullopt; }

// Passes whole tensors to the module itself and other values to the layer on tiles.
template <class Module>
class ModuleLayer final : public Layer {
 public:
  ModuleLayer(std::shared_ptr<Module> module, LayerPtr tiles) : module_(std::move(module)), tiles_(std::move(tiles)) {}

  Activations forward(const Activations& x, const ForwardContext& context) override {
    if (const auto* whole = std::get_if<Tensor>(&x)) return module_->forward(*whole);
    return tiles_->forward(x, context);
  }

  [[nodiscard]] std::optional<RegionPart> region_part(std::size_t dims) const override {
    return tiles_->region_part(dims);
  }

 private:
  std::shared_ptr<Module> module_;
  LayerPtr tiles_;
};

// A factory returns null if the module is not of its class.
template <class Module, class Make>
LayerPtr if_module(const ModulePtr& module, Make&& make) {
  const auto own = std::dynamic_pointer_cast<Module>(module);
  return own ? std::make_shared<ModuleLayer<Module>>(own, make(own)) : nullptr;
}

template <std::size_t D, class Module>
LayerPtr convolution_of(const ModulePtr& module) {
  return if_module<Module>(module, [](const auto& m) {
    return convolution(m->weight, if_defined(m->bias), convolution_options<D>(m->options, m->weight));
  });
}

template <std::size_t D, class Module>
LayerPtr transposed_of(const ModulePtr& module) {
  return if_module<Module>(module, [](const auto& m) {
    const auto& o = m->options;
    const auto& padding = std::get<torch::ExpandingArray<D>>(o.padding());
    return transposed_convolution(m->weight, if_defined(m->bias),
                                  {sizes_of<D>(o.stride()), sizes_of<D>(padding), sizes_of<D>(o.output_padding()),
                                   sizes_of<D>(o.dilation()), o.groups()});
  });
}

template <std::size_t D, class Module>
LayerPtr max_pool_of(const ModulePtr& module) {
  return if_module<Module>(module, [](const auto& m) { return max_pool(max_pool_options<D>(m->options)); });
}

template <std::size_t D, class Module>
LayerPtr average_pool_of(const ModulePtr& module) {
  return if_module<Module>(module, [](const auto& m) {
    const auto& o = m->options;
    PoolingOptions options{sizes_of<D>(o.kernel_size()),
                           sizes_of<D>(o.stride()),
                           sizes_of<D>(o.padding()),
                           {1},
                           o.ceil_mode(),
                           o.count_include_pad(),
                           std::nullopt};
    if constexpr (D > 1) options.divisor = o.divisor_override();
    return on_tiles("average pooling", [options](const DistTensor& x) { return average_pool(x, options); });
  });
}

template <std::size_t D, class Module>
LayerPtr norm_pool_of(const ModulePtr& module) {
  return if_module<Module>(module, [](const auto& m) {
    const auto& o = m->options;
    const PoolingOptions options{
        sizes_of<D>(o.kernel_size()), sizes_of<D>(o.stride()), {0}, {1}, o.ceil_mode(), true, std::nullopt};
    return on_tiles("p-norm pooling",
                    [options, p = o.norm_type()](const DistTensor& x) { return norm_pool(x, p, options); });
  });
}

enum class Pooled { kAverage, kMaximum };

template <std::size_t D, class Module, Pooled kPooled = Pooled::kAverage>
LayerPtr adaptive_of(const ModulePtr& module) {
  return if_module<Module>(module, [](const auto& m) {
    return on_tiles("adaptive pooling", [m](const DistTensor& x) -> Activations {
      Sizes outputs;
      for (std::size_t i = 0; i < D; ++i) {
        const std::optional<std::int64_t> wanted = (*m->options.output_size())[i];
        outputs.push_back(wanted.value_or(x.layout->shape()[i]));
      }
      if constexpr (kPooled == Pooled::kMaximum) {
        if (outputs == Sizes(D, 1)) return global_max_pool(x);
        return adaptive_max_pool(x, outputs);
      }
      if (outputs == Sizes(D, 1)) return global_average_pool(x);
      return adaptive_average_pool(x, outputs);
    });
  });
}

template <class Module>
LayerPtr batch_norm_of(const ModulePtr& module) {
  return if_module<Module>(module, [](const auto& m) {
    return on_tiles("batch normalization", [m](const DistTensor& x) {
      const bool counts = m->is_training() && m->num_batches_tracked.defined() && !x.local.is_meta();
      if (counts) m->num_batches_tracked.add_(1);
      const double average = m->options.momentum() ? *m->options.momentum()
                             : counts              ? 1.0 / m->num_batches_tracked.template item<double>()
                                                   : 0;
      const auto part = [&](const Tensor& tensor) { return matching(if_defined(tensor), x.local); };
      return batch_norm(x, part(m->weight), part(m->bias), part(m->running_mean), part(m->running_var),
                        m->is_training(), average, m->options.eps());
    });
  });
}

LayerPtr group_norm_of(const ModulePtr& module) {
  return if_module<tnn::GroupNormImpl>(module, [](const auto& m) {
    return on_tiles("group normalization", [m](const DistTensor& x) {
      return group_norm(x, m->options.num_groups(), matching(if_defined(m->weight), x.local),
                        matching(if_defined(m->bias), x.local), m->options.eps());
    });
  });
}

LayerPtr layer_norm_of(const ModulePtr& module) {
  return if_module<tnn::LayerNormImpl>(module, [](const auto& m) {
    return on_tiles("layer normalization", [m](const DistTensor& x) {
      return layer_norm(x, m->options.normalized_shape(), matching(if_defined(m->weight), x.local),
                        matching(if_defined(m->bias), x.local), m->options.eps());
    });
  });
}

DistTensor upsampled(const tnn::UpsampleOptions& o, const DistTensor& x) {
  const std::string mode = torch::enumtype::get_enum_name(o.mode()).substr(1);
  const Resampling resampling = mode == "Nearest" ? Resampling::kNearest : Resampling::kLinear;
  TORCH_CHECK_NOT_IMPLEMENTED(mode == "Nearest" || mode.find("inear") != std::string::npos,
                              "weft: interpolation of tiles does not support mode ", mode);
  const bool corners = o.align_corners().value_or(false);
  if (o.size()) return interpolate(x, *o.size(), resampling, corners);
  Sizes outputs;
  std::vector<double> scales = *o.scale_factor();
  if (scales.size() == 1) scales.resize(x.dims(), scales[0]);
  for (std::size_t i = 0; i < x.dims(); ++i) {
    outputs.push_back(static_cast<std::int64_t>(static_cast<double>(x.layout->shape()[i]) * scales[i]));
  }
  return interpolate(x, outputs, resampling, corners, scales);
}

LayerPtr upsample_of(const ModulePtr& module) {
  return if_module<tnn::UpsampleImpl>(module, [](const auto& m) {
    return on_tiles("upsampling", [m](const DistTensor& x) { return upsampled(m->options, x); });
  });
}

LayerPtr flatten_of(const ModulePtr& module) {
  return if_module<tnn::FlattenImpl>(module, [](const auto& m) {
    return function_layer([m](const Activations& x, const ForwardContext&) -> Activations {
      TORCH_CHECK_NOT_IMPLEMENTED(m->options.start_dim() == 1 && m->options.end_dim() == -1,
                                  "weft: tiles can only be flattened from dimension 1 to the last");
      if (std::holds_alternative<Flattened>(x)) return x;
      return Flattened{std::get<DistTensor>(x)};
    });
  });
}

template <class... Modules>
LayerPtr elementwise_of(const ModulePtr& module) {
  LayerPtr layer;
  const auto attempt = [&]<class Module>(std::type_identity<Module>) {
    layer = if_module<Module>(module, [](const auto& m) {
      return elementwise([m](const Tensor& x) { return x.is_meta() ? x : m->forward(x); });
    });
    return layer != nullptr;
  };
  static_cast<void>((attempt(std::type_identity<Modules>{}) || ...));
  return layer;
}

template <class Module>
LayerPtr dropout_of(const ModulePtr& module, std::int64_t seed, bool whole_channels) {
  const auto own = std::dynamic_pointer_cast<Module>(module);
  if (!own) return nullptr;
  const LayerPtr masks = dropout(own->options.p(), static_cast<std::uint64_t>(seed), whole_channels);
  return function_layer([own, masks](const Activations& x, ForwardContext context) {
    context.training = own->is_training();
    return masks->forward(x, context);
  });
}

using Factory = LayerPtr (*)(const ModulePtr&);
constexpr Factory kFactories[] = {
    &convolution_of<1, tnn::Conv1dImpl>,
    &convolution_of<2, tnn::Conv2dImpl>,
    &convolution_of<3, tnn::Conv3dImpl>,
    &transposed_of<1, tnn::ConvTranspose1dImpl>,
    &transposed_of<2, tnn::ConvTranspose2dImpl>,
    &transposed_of<3, tnn::ConvTranspose3dImpl>,
    &max_pool_of<1, tnn::MaxPool1dImpl>,
    &max_pool_of<2, tnn::MaxPool2dImpl>,
    &max_pool_of<3, tnn::MaxPool3dImpl>,
    &average_pool_of<1, tnn::AvgPool1dImpl>,
    &average_pool_of<2, tnn::AvgPool2dImpl>,
    &average_pool_of<3, tnn::AvgPool3dImpl>,
    &adaptive_of<1, tnn::AdaptiveAvgPool1dImpl>,
    &adaptive_of<2, tnn::AdaptiveAvgPool2dImpl>,
    &adaptive_of<3, tnn::AdaptiveAvgPool3dImpl>,
    &adaptive_of<1, tnn::AdaptiveMaxPool1dImpl, Pooled::kMaximum>,
    &adaptive_of<2, tnn::AdaptiveMaxPool2dImpl, Pooled::kMaximum>,
    &adaptive_of<3, tnn::AdaptiveMaxPool3dImpl, Pooled::kMaximum>,
    &norm_pool_of<1, tnn::LPPool1dImpl>,
    &norm_pool_of<2, tnn::LPPool2dImpl>,
    &batch_norm_of<tnn::BatchNorm1dImpl>,
    &batch_norm_of<tnn::BatchNorm2dImpl>,
    &batch_norm_of<tnn::BatchNorm3dImpl>,
    &group_norm_of,
    &layer_norm_of,
    &upsample_of,
    &flatten_of,
    &elementwise_of<tnn::ReLUImpl, tnn::ReLU6Impl, tnn::LeakyReLUImpl, tnn::ELUImpl, tnn::SELUImpl, tnn::GELUImpl,
                    tnn::SiLUImpl, tnn::MishImpl, tnn::CELUImpl, tnn::HardtanhImpl, tnn::SigmoidImpl, tnn::TanhImpl,
                    tnn::SoftplusImpl, tnn::SoftsignImpl, tnn::LogSigmoidImpl, tnn::IdentityImpl>,
};

}  // namespace

std::string kind_of(const torch::nn::Module& module) {
  const std::string name = module.name();
  return name.substr(name.rfind(':') + 1);
}

LayerPtr layer_of(const std::string& name, const ModulePtr& module, std::int64_t seed) {
  if (LayerPtr layer = dropout_of<tnn::DropoutImpl>(module, seed, false)) return layer;
  if (LayerPtr layer = dropout_of<tnn::Dropout2dImpl>(module, seed, true)) return layer;
  if (LayerPtr layer = dropout_of<tnn::Dropout3dImpl>(module, seed, true)) return layer;
  for (const Factory make : kFactories) {
    if (LayerPtr layer = make(module)) return layer;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "weft: parallelize cannot split '", name, "' (", kind_of(*module), ")");
}

}  // namespace weft::spatial::nn
