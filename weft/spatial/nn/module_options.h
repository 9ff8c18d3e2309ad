// Conversion of the options of torch::nn modules to those of the operations on tiles.
#pragma once

#include <torch/enum.h>
#include <torch/expanding_array.h>

#include <cctype>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/spatial/convolution/convolution.h"
#include "weft/spatial/pooling.h"

namespace weft::spatial::nn {

template <std::size_t D>
[[nodiscard]] std::vector<std::int64_t> sizes_of(const torch::ExpandingArray<D>& values) {
  return {values->begin(), values->end()};
}

template <std::size_t D, class Options>
[[nodiscard]] ConvolutionOptions convolution_options(const Options& given, const at::Tensor& weight) {
  ConvolutionOptions options{sizes_of<D>(given.stride()), {0}, {}, sizes_of<D>(given.dilation()), given.groups()};
  const std::string mode = torch::enumtype::get_enum_name(given.padding_mode()).substr(1);  // "Zeros", from "kZeros"
  options.border = partition::parse_border(std::string(1, static_cast<char>(std::tolower(mode[0]))) + mode.substr(1));
  if (const auto* numbers = std::get_if<torch::ExpandingArray<D>>(&given.padding()))
    options.padding = sizes_of<D>(*numbers);
  if (!std::holds_alternative<torch::enumtype::kSame>(given.padding())) return options;
  options.padding.clear();
  for (std::size_t i = 0; i < D; ++i) {
    const std::int64_t total = options.dilation[i] * (weight.size(static_cast<std::int64_t>(i) + 2) - 1);
    options.padding.push_back(total / 2);
    options.padding_behind.push_back(total - total / 2);
  }
  return options;
}

template <std::size_t D, class Options>
[[nodiscard]] PoolingOptions max_pool_options(const Options& given) {
  return {sizes_of<D>(given.kernel_size()),
          sizes_of<D>(given.stride()),
          sizes_of<D>(given.padding()),
          sizes_of<D>(given.dilation()),
          given.ceil_mode(),
          true,
          std::nullopt};
}

}  // namespace weft::spatial::nn
