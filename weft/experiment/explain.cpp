#include "weft/experiment/description.h"
#include "weft/experiment/network.h"
#include "weft/partition/tiling.h"

namespace weft::experiment {
namespace {

std::int64_t parameter_count(const LayerSpec& spec, const LayerSizes& sizes) {
  const std::int64_t taps = sizes.in.maps * spec.kernel[0] * spec.kernel[1];
  const std::int64_t bias = spec.bias ? spec.outputs : 0;
  switch (spec.kind) {
    case LayerKind::kConvolution:
      return spec.outputs * taps + bias;
    case LayerKind::kLocalFilter:
      return sizes.out.values() * taps;
    case LayerKind::kLinear:
      return spec.outputs * sizes.in.values() + bias;
    case LayerKind::kBatchNorm:
      return 2 * sizes.in.maps;
    case LayerKind::kResidualStack:
      return spec.depth * (sizes.in.maps * taps + sizes.in.maps);
    default:
      return 0;
  }
}

// "14 x 14" of an even cut, "4-5 x 28" of an uneven one.
std::string tiles_text(const Sizes& shape, const Sizes& grid) {
  std::string text;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int64_t most = (shape[i] + grid[i] - 1) / grid[i];
    const std::int64_t least = shape[i] / grid[i];
    text += (i == 0 ? "" : " x ") + std::to_string(least) + (most == least ? "" : "-" + std::to_string(most));
  }
  return text;
}

std::string cut_of(const Extent& out, const RankPlan& plan, bool in_parts) {
  const std::int64_t tiles = plan.tiles[0] * plan.tiles[1];
  if (!out.shape.empty()) return tiles_text(out.shape, plan.tiles);
  return in_parts ? tiles_text({out.maps}, {tiles}) : "whole";
}

}  // namespace

std::string kind_name(LayerKind kind) {
  switch (kind) {
    case LayerKind::kConvolution:
      return "conv";
    case LayerKind::kMaxPool:
      return "max_pool";
    case LayerKind::kAveragePool:
      return "average_pool";
    case LayerKind::kNormPool:
      return "l2_pool";
    case LayerKind::kContrastNorm:
      return "contrast_norm";
    case LayerKind::kLocalFilter:
      return "local_filter";
    case LayerKind::kLinear:
      return "linear";
    case LayerKind::kBatchNorm:
      return "batch_norm";
    case LayerKind::kDropout:
      return "dropout";
    case LayerKind::kActivation:
      return "activation";
    case LayerKind::kGlobalAverage:
      return "global_average_pool";
    case LayerKind::kResidualStack:
      return "residual_stack";
  }
  return "";
}

std::vector<LayerRow> explain(const Experiment& experiment, const RankPlan& plan) {
  Problems problems(experiment.file);
  const auto sizes = layer_sizes(experiment, problems);
  problems.throw_if_any();
  std::vector<LayerRow> rows;
  const auto& layers = experiment.model.layers;
  std::size_t last_linear = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].kind == LayerKind::kLinear) last_linear = i;
  }
  bool whole = false;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    whole = whole || layers[i].kind == LayerKind::kGlobalAverage;
    const bool in_parts = !whole && i < last_linear;
    rows.push_back({layers[i].name, kind_name(layers[i].kind), sizes[i].out.describe(),
                    cut_of(sizes[i].out, plan, in_parts), parameter_count(layers[i], sizes[i])});
  }
  return rows;
}

}  // namespace weft::experiment
