#include "weft/experiment/layer_output.h"

#include <algorithm>

namespace weft::experiment {
namespace {

bool is_convolution(LayerKind kind) {
  return kind == LayerKind::kConvolution || kind == LayerKind::kTransposedConvolution;
}

bool is_adaptive(LayerKind kind) {
  return kind == LayerKind::kAdaptiveAveragePool || kind == LayerKind::kAdaptiveMaxPool;
}

bool needs_field(LayerKind kind) {
  return is_windowed(kind) || is_convolution(kind) || is_adaptive(kind) || kind == LayerKind::kContrastNorm ||
         kind == LayerKind::kGlobalAverage || kind == LayerKind::kResidualStack || kind == LayerKind::kUpsample ||
         kind == LayerKind::kGroupNorm || kind == LayerKind::kInstanceNorm;
}

void refuse(const LayerSpec& layer, const std::string& expected, const std::string& got, Problems& problems) {
  problems.add(layer.place, "expected " + expected + " in layer '" + layer.name + "', got " + got);
}

// Cells from the first to the last that a window looks at.
Sizes reach_of(const LayerSpec& layer) {
  Sizes reach;
  for (std::size_t i = 0; i < layer.kernel.size(); ++i) reach.push_back(layer.dilation[i] * (layer.kernel[i] - 1) + 1);
  return reach;
}

Extent windowed(const LayerSpec& layer, const Extent& in, Problems& problems) {
  Extent out{is_filter(layer.kind) ? layer.outputs : in.maps, in.shape};
  const Sizes reach = reach_of(layer);
  for (std::size_t i = 0; i < in.shape.size(); ++i) {
    const std::int64_t room = in.shape[i] + 2 * layer.padding[i] - reach[i];
    if (!is_filter(layer.kind) && 2 * layer.padding[i] > layer.kernel[i]) {
      refuse(layer, "padding of at most half a window", text_of(layer.padding), problems);
      return out;
    }
    if (room < 0) {
      refuse(layer, "a window that fits into " + text_of(in.shape), text_of(reach), problems);
      return out;
    }
    out.shape[i] = room / layer.stride[i] + 1;
  }
  return out;
}

// Layers that make fields larger, one behind the other, could make them larger than numbers are.
Extent grown(const LayerSpec& layer, const Extent& in, const Extent& out, Problems& problems) {
  constexpr std::int64_t kMost = 1'000'000'000;
  if (out.shape[0] <= kMost && out.shape[1] <= kMost) return out;
  refuse(layer, "at most " + std::to_string(kMost) + " rows and columns", text_of(out.shape), problems);
  return in;
}

Extent transposed(const LayerSpec& layer, const Extent& in, Problems& problems) {
  Extent out{layer.outputs, in.shape};
  const Sizes reach = reach_of(layer);
  for (std::size_t i = 0; i < in.shape.size(); ++i) {
    if (layer.output_padding[i] >= std::max(layer.stride[i], layer.dilation[i])) {
      refuse(layer, "output_padding smaller than stride or dilation", text_of(layer.output_padding), problems);
      return in;
    }
    const std::int64_t size =
        (in.shape[i] - 1) * layer.stride[i] + reach[i] + layer.output_padding[i] - 2 * layer.padding[i];
    if (size < 1) {
      refuse(layer, "padding that leaves something of the outputs", text_of(layer.padding), problems);
      return in;
    }
    out.shape[i] = size;
  }
  return grown(layer, in, out, problems);
}

Extent resized(const LayerSpec& layer, const Extent& in, Problems& problems) {
  Extent out{in.maps, layer.size};
  if (layer.size.empty()) out.shape = {in.shape[0] * layer.scale[0], in.shape[1] * layer.scale[1]};
  return grown(layer, in, out, problems);
}

void check_groups(const LayerSpec& layer, const Extent& in, Problems& problems) {
  const bool outputs_too = is_convolution(layer.kind);
  if (in.maps % layer.groups == 0 && (!outputs_too || layer.outputs % layer.groups == 0)) return;
  refuse(layer,
         "groups that divide " + std::to_string(in.maps) +
             (outputs_too ? " maps before and " + std::to_string(layer.outputs) + " behind it" : " maps"),
         std::to_string(layer.groups), problems);
}

void check_field(const LayerSpec& layer, const Extent& in, Problems& problems) {
  check_groups(layer, in, problems);
  const bool even = std::any_of(layer.kernel.begin(), layer.kernel.end(), [](std::int64_t k) { return k % 2 == 0; });
  const bool centred = layer.kind == LayerKind::kContrastNorm || layer.kind == LayerKind::kResidualStack;
  if (even && centred) refuse(layer, "odd windows", text_of(layer.kernel), problems);
  if (layer.kind == LayerKind::kInstanceNorm && in.values() == in.maps) {
    refuse(layer, "maps of more than one cell, whose mean and variance tell something", in.describe(), problems);
  }
}

LayerSizes chain_ends(const std::vector<LayerSizes>& chain, const Extent& in) {
  return {in, chain.empty() ? in : chain.back().out};
}

std::vector<LayerSizes> chain_sizes(const std::vector<LayerSpec>& layers, const Extent& in, Problems& problems) {
  std::vector<LayerSizes> result;
  for (const LayerSpec& layer : layers) {
    result.push_back(sizes_of(layer, result.empty() ? in : result.back().out, problems));
  }
  return result;
}

LayerSizes block_sizes(const LayerSpec& block, const Extent& in, Problems& problems) {
  LayerSizes result{in, in, chain_sizes(block.body, in, problems), chain_sizes(block.shortcut, in, problems)};
  const Extent body = chain_ends(result.body, in).out;
  result.out = chain_ends(result.shortcut, in).out;
  if (body == result.out) return result;
  const std::string beside =
      block.shortcut.empty() ? "that is its input, to which they are added" : "as its shortcut's";
  problems.add(block.place, "expected the layers of residual block '" + block.name + "' to give " +
                                result.out.describe() + ", " + beside + "; got " + body.describe() +
                                (block.shortcut.empty() ? "; a shortcut can change its size too" : ""));
  return result;
}

Extent output_of(const LayerSpec& layer, const Extent& in, Problems& problems) {
  const bool field = !in.shape.empty() && !in.flat;
  if (needs_field(layer.kind) && !field) {
    problems.add(layer.place, "expected images before layer '" + layer.name + "', got " + in.describe());
    return in;
  }
  if (in.flat && layer.kind == LayerKind::kBatchNorm) {
    problems.add(layer.place, "expected layer '" + layer.name + "' before flatten or behind a linear layer, got " +
                                  in.describe() + " of a field");
  }
  if (needs_field(layer.kind)) check_field(layer, in, problems);
  if (is_windowed(layer.kind)) return windowed(layer, in, problems);
  if (layer.kind == LayerKind::kTransposedConvolution) return transposed(layer, in, problems);
  if (layer.kind == LayerKind::kUpsample || is_adaptive(layer.kind)) return resized(layer, in, problems);
  if (layer.kind == LayerKind::kLinear) return {layer.outputs, {}};
  if (layer.kind == LayerKind::kGlobalAverage) return {in.maps, {}};
  if (layer.kind == LayerKind::kFlatten) return {in.maps, in.shape, !in.shape.empty()};
  return in;
}

// Whether somebody may mean as much: beyond, sizes multiply to more than any machine's memory.
void require_memory(const LayerSpec& layer, const LayerSizes& sizes, Problems& problems) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const Extent taps{is_windowed(layer.kind) || is_convolution(layer.kind) ? sizes.in.maps : sizes.in.values(),
                    layer.kernel};
  const bool weights = is_filter(layer.kind) || is_convolution(layer.kind) || layer.kind == LayerKind::kLinear;
  std::int64_t count = 0;
  const bool too_many = weights && (__builtin_mul_overflow(layer.outputs, taps.values(), &count) || count > kMost);
  if (!too_many && sizes.out.values() <= kMost) return;
  problems.add(layer.place, "expected at most " + std::to_string(kMost) + " values and weights in layer '" +
                                layer.name + "', got more");
}

}  // namespace

bool is_filter(LayerKind kind) { return kind == LayerKind::kConvolution || kind == LayerKind::kLocalFilter; }

bool is_windowed(LayerKind kind) {
  return is_filter(kind) || kind == LayerKind::kMaxPool || kind == LayerKind::kAveragePool ||
         kind == LayerKind::kNormPool;
}

std::string text_of(const Sizes& sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

LayerSizes sizes_of(const LayerSpec& layer, const Extent& in, Problems& problems) {
  if (layer.kind == LayerKind::kResidualBlock) return block_sizes(layer, in, problems);
  const LayerSizes sizes{in, output_of(layer, in, problems)};
  require_memory(layer, sizes, problems);
  return sizes;
}

void for_each_layer(const std::vector<LayerSpec>& layers, const std::function<void(const LayerSpec&)>& visit) {
  for (const LayerSpec& layer : layers) {
    for_each_layer(layer.body, visit);
    for_each_layer(layer.shortcut, visit);
    visit(layer);
  }
}

}  // namespace weft::experiment
