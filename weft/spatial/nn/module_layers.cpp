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

#include <cctype>

#include "weft/spatial/adaptive_pooling.h"
#include "weft/spatial/interpolation.h"
#include "weft/spatial/nn/layers.h"
#include "weft/spatial/normalization.h"

namespace weft::spatial::nn {
namespace {

namespace tnn = torch::nn;
using at::Tensor;

OptionalTensor if_defined(const Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : std::nullopt; }

template <std::size_t D>
Sizes sizes_of(const torch::ExpandingArray<D>& values) {
  return {values->begin(), values->end()};
}

// Returns the name of an enumerator in Python, e.g. "zeros" for torch::kZeros.
template <class Enum>
std::string name_of(const Enum& value) {
  std::string name = torch::enumtype::get_enum_name(value).substr(1);
  name[0] = static_cast<char>(std::tolower(name[0]));
  return name;
}

// Whole tensors take the module itself, other values the layer on tiles.
template <class Module>
LayerPtr module_layer(const std::shared_ptr<Module>& module, const LayerPtr& tiles) {
  return function_layer(
      [=](const Activations& x, const ForwardContext& context) -> Activations {
        if (const auto* whole = std::get_if<Tensor>(&x)) return module->forward(*whole);
        return tiles->forward(x, context);
      },
      [tiles](std::size_t dims) { return tiles->region_layer(dims); });
}

// Calls `make` with the module if it is of one of the classes; otherwise returns null.
template <class... Modules, class Make>
LayerPtr if_module(const ModulePtr& module, const Make& make) {
  LayerPtr layer;
  const auto attempt = [&]<class Module>(std::type_identity<Module>) {
    const auto own = std::dynamic_pointer_cast<Module>(module);
    if (own) layer = make(own);
  };
  (attempt(std::type_identity<Modules>{}), ...);
  return layer;
}

// Uses the layer that `make` returns for tiles only.
template <class... Modules, class Make>
LayerPtr on_tiles_if(const ModulePtr& module, const Make& make) {
  return if_module<Modules...>(module, [&](const auto& m) { return module_layer(m, make(m)); });
}

template <std::size_t D>
ConvolutionOptions convolution_options(const tnn::detail::ConvNdOptions<D>& given, const Tensor& weight) {
  ConvolutionOptions options{sizes_of(given.stride()), {0}, {}, sizes_of(given.dilation()), given.groups()};
  options.border = partition::parse_border(name_of(given.padding_mode()));
  if (const auto* numbers = std::get_if<torch::ExpandingArray<D>>(&given.padding()))
    options.padding = sizes_of(*numbers);
  if (!std::holds_alternative<torch::enumtype::kSame>(given.padding())) return options;
  options.padding.clear();
  for (std::size_t i = 0; i < D; ++i) {
    const std::int64_t total = options.dilation[i] * (weight.size(static_cast<std::int64_t>(i) + 2) - 1);
    options.padding.push_back(total / 2);
    options.padding_behind.push_back(total - total / 2);
  }
  return options;
}

LayerPtr convolution_of(const ModulePtr& module) {
  return on_tiles_if<tnn::Conv1dImpl, tnn::Conv2dImpl, tnn::Conv3dImpl>(module, [](const auto& m) {
    return convolution(m->weight, if_defined(m->bias), convolution_options(m->options, m->weight));
  });
}

template <std::size_t D>
TransposedConvolutionOptions transposed_options(const tnn::detail::ConvNdOptions<D>& o) {
  const auto& padding = std::get<torch::ExpandingArray<D>>(o.padding());
  return {sizes_of(o.stride()), sizes_of(padding), sizes_of(o.output_padding()), sizes_of(o.dilation()), o.groups()};
}

LayerPtr transposed_of(const ModulePtr& module) {
  return on_tiles_if<tnn::ConvTranspose1dImpl, tnn::ConvTranspose2dImpl, tnn::ConvTranspose3dImpl>(
      module, [](const auto& m) {
        return transposed_convolution(m->weight, if_defined(m->bias), transposed_options(m->options));
      });
}

// Kernel, stride and ceil_mode, which all poolings by windows have.
template <class Options>
PoolingOptions pooling_options(const Options& o) {
  return {.kernel = sizes_of(o.kernel_size()), .stride = sizes_of(o.stride()), .ceil_mode = o.ceil_mode()};
}

LayerPtr max_pool_of(const ModulePtr& module) {
  return on_tiles_if<tnn::MaxPool1dImpl, tnn::MaxPool2dImpl, tnn::MaxPool3dImpl>(module, [](const auto& m) {
    PoolingOptions options = pooling_options(m->options);
    options.padding = sizes_of(m->options.padding());
    options.dilation = sizes_of(m->options.dilation());
    return max_pool(options);
  });
}

LayerPtr average_pool_of(const ModulePtr& module) {
  return on_tiles_if<tnn::AvgPool1dImpl, tnn::AvgPool2dImpl, tnn::AvgPool3dImpl>(module, [](const auto& m) {
    PoolingOptions options = pooling_options(m->options);
    options.padding = sizes_of(m->options.padding());
    options.count_include_pad = m->options.count_include_pad();
    if constexpr (requires { m->options.divisor_override(); }) options.divisor = m->options.divisor_override();
    return on_tiles("average pooling", [options](const DistTensor& x) { return average_pool(x, options); });
  });
}

LayerPtr norm_pool_of(const ModulePtr& module) {
  return on_tiles_if<tnn::LPPool1dImpl, tnn::LPPool2dImpl>(module, [](const auto& m) {
    return on_tiles("p-norm pooling", [options = pooling_options(m->options), p = m->options.norm_type()](
                                          const DistTensor& x) { return norm_pool(x, p, options); });
  });
}

template <class... Modules>
LayerPtr adaptive_of(const ModulePtr& module, Tensor (*global)(const DistTensor&),
                     DistTensor (*tiled)(const DistTensor&, const Sizes&)) {
  return on_tiles_if<Modules...>(module, [=](const auto& m) {
    return on_tiles("adaptive pooling", [=](const DistTensor& x) -> Activations {
      const Sizes shape = x.layout->shape();
      Sizes outputs;
      for (const std::optional<std::int64_t> wanted : *m->options.output_size())
        outputs.push_back(wanted ? *wanted : shape.at(outputs.size()));
      if (outputs == Sizes(outputs.size(), 1)) return global(x);
      return tiled(x, outputs);
    });
  });
}

LayerPtr adaptive_average_pool_of(const ModulePtr& module) {
  return adaptive_of<tnn::AdaptiveAvgPool1dImpl, tnn::AdaptiveAvgPool2dImpl, tnn::AdaptiveAvgPool3dImpl>(
      module, &global_average_pool, &adaptive_average_pool);
}

LayerPtr adaptive_max_pool_of(const ModulePtr& module) {
  return adaptive_of<tnn::AdaptiveMaxPool1dImpl, tnn::AdaptiveMaxPool2dImpl, tnn::AdaptiveMaxPool3dImpl>(
      module, &global_max_pool, &adaptive_max_pool);
}

LayerPtr batch_norm_of(const ModulePtr& module) {
  return on_tiles_if<tnn::BatchNorm1dImpl, tnn::BatchNorm2dImpl, tnn::BatchNorm3dImpl>(module, [](const auto& m) {
    return on_tiles("batch normalization", [m](const DistTensor& x) {
      const bool counts = m->is_training() && m->num_batches_tracked.defined() && !x.local.is_meta();
      if (counts) m->num_batches_tracked.add_(1);
      const double average = m->options.momentum() ? *m->options.momentum()
                             : counts              ? 1.0 / m->num_batches_tracked.template item<double>()
                                                   : 0;
      return batch_norm(x, m->weight, m->bias, m->running_mean, m->running_var, m->is_training(), average,
                        m->options.eps());
    });
  });
}

LayerPtr group_norm_of(const ModulePtr& module) {
  return on_tiles_if<tnn::GroupNormImpl>(module, [](const auto& m) {
    return on_tiles("group normalization", [m](const DistTensor& x) {
      return group_norm(x, m->options.num_groups(), m->weight, m->bias, m->options.eps());
    });
  });
}

LayerPtr layer_norm_of(const ModulePtr& module) {
  return on_tiles_if<tnn::LayerNormImpl>(module, [](const auto& m) {
    return on_tiles("layer normalization", [m](const DistTensor& x) {
      return layer_norm(x, m->options.normalized_shape(), m->weight, m->bias, m->options.eps());
    });
  });
}

DistTensor upsampled(const tnn::UpsampleOptions& o, const DistTensor& x) {
  const Resampling resampling = parse_resampling(name_of(o.mode()));
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
  return on_tiles_if<tnn::UpsampleImpl>(module, [](const auto& m) {
    return on_tiles("upsampling", [m](const DistTensor& x) { return upsampled(m->options, x); });
  });
}

LayerPtr flatten_of(const ModulePtr& module) {
  return on_tiles_if<tnn::FlattenImpl>(module, [](const auto& m) {
    return function_layer([m](const Activations& x, const ForwardContext&) -> Activations {
      TORCH_CHECK_NOT_IMPLEMENTED(m->options.start_dim() == 1 && m->options.end_dim() == -1,
                                  "weft: tiles can only be flattened from dimension 1 to the last");
      if (std::holds_alternative<Flattened>(x)) return x;
      return Flattened{std::get<DistTensor>(x)};
    });
  });
}

LayerPtr elementwise_of(const ModulePtr& module) {
  return if_module<tnn::ReLUImpl, tnn::ReLU6Impl, tnn::LeakyReLUImpl, tnn::ELUImpl, tnn::SELUImpl, tnn::GELUImpl,
                   tnn::SiLUImpl, tnn::MishImpl, tnn::CELUImpl, tnn::HardtanhImpl, tnn::SigmoidImpl, tnn::TanhImpl,
                   tnn::SoftplusImpl, tnn::SoftsignImpl, tnn::LogSigmoidImpl, tnn::IdentityImpl>(
      module,
      [](const auto& m) { return elementwise([m](const Tensor& x) { return x.is_meta() ? x : m->forward(x); }); });
}

template <class... Modules>
LayerPtr dropout_of(const ModulePtr& module, std::int64_t seed, bool whole_channels) {
  return if_module<Modules...>(module, [&](const auto& m) {
    const LayerPtr masks = dropout(m->options.p(), static_cast<std::uint64_t>(seed), whole_channels);
    return function_layer([m, masks](const Activations& x, ForwardContext context) {
      context.training = m->is_training();
      return masks->forward(x, context);
    });
  });
}

}  // namespace

std::string kind_of(const torch::nn::Module& module) {
  const std::string name = module.name();
  return name.substr(name.rfind(':') + 1);
}

LayerPtr layer_of(const std::string& name, const ModulePtr& module, std::int64_t seed) {
  if (LayerPtr layer = dropout_of<tnn::DropoutImpl>(module, seed, false)) return layer;
  if (LayerPtr layer = dropout_of<tnn::Dropout2dImpl, tnn::Dropout3dImpl>(module, seed, true)) return layer;
  for (const auto make : {&convolution_of, &transposed_of, &max_pool_of, &average_pool_of, &norm_pool_of,
                          &adaptive_average_pool_of, &adaptive_max_pool_of, &batch_norm_of, &group_norm_of,
                          &layer_norm_of, &upsample_of, &flatten_of, &elementwise_of}) {
    if (LayerPtr layer = make(module)) return layer;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "weft: parallelize cannot split '", name, "' (", kind_of(*module), ")");
}

}  // namespace weft::spatial::nn
