#include "weft/experiment/description.h"
#include "weft/experiment/network.h"
#include "weft/partition/tiling.h"

namespace weft::experiment {
namespace {

std::int64_t parameter_count(const LayerSpec& spec, const LayerSizes& sizes) {
  const std::int64_t taps = sizes.in.maps / spec.groups * spec.kernel[0] * spec.kernel[1];
  const std::int64_t bias = spec.bias ? spec.outputs : 0;
  switch (spec.kind) {
    case LayerKind::kConvolution:
    case LayerKind::kTransposedConvolution:
      return spec.outputs * taps + bias;
    case LayerKind::kLocalFilter:
      return sizes.out.values() * taps;
    case LayerKind::kLinear:
      return spec.outputs * sizes.in.values() + bias;
    case LayerKind::kBatchNorm:
      return 2 * sizes.in.maps;
    case LayerKind::kGroupNorm:
    case LayerKind::kInstanceNorm:
      return spec.affine ? 2 * sizes.in.maps : 0;
    case LayerKind::kLayerNorm:
      return spec.affine ? 2 * sizes.in.values() : 0;
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

// "whole, 2-3 of 8 layers" where ranks share a stack's layers.
std::string stack_text(const LayerSpec& stack, const std::string& field, const RankPlan& plan) {
  if (plan.copies == 1) return field;
  return field + ", " + tiles_text({stack.depth}, {plan.copies}) + " of " + std::to_string(stack.depth) + " layers";
}

// The rows of layers one behind the other. `whole` is whether every rank has all of a vector that goes into them, and
// becomes whether every rank has all that comes out.
class Rows {
 public:
  explicit Rows(const RankPlan& plan) : plan_(plan) {}

  void add(const LayerSpec& layer, const LayerSizes& sizes, bool linear_follows, bool& whole) {
    if (layer.kind == LayerKind::kGlobalAverage) whole = true;
    if (layer.kind == LayerKind::kLinear) whole = whole || !linear_follows;
    if (layer.kind == LayerKind::kResidualBlock) {
      bool beside = whole;
      for (std::size_t i = 0; i < layer.body.size(); ++i) add(layer.body[i], sizes.body[i], linear_follows, whole);
      for (std::size_t i = 0; i < layer.shortcut.size(); ++i)
        add(layer.shortcut[i], sizes.shortcut[i], linear_follows, beside);
      whole = whole && beside;
    }
    std::string has = cut_of(sizes.out, plan_, !whole);
    if (layer.kind == LayerKind::kResidualStack) has = stack_text(layer, has, plan_);
    rows_.push_back(
        {layer.name, kind_name(layer.kind), sizes.out.describe(), std::move(has), parameter_count(layer, sizes)});
  }

  [[nodiscard]] const std::vector<LayerRow>& all() const noexcept { return rows_; }

 private:
  const RankPlan& plan_;
  std::vector<LayerRow> rows_;
};

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
    case LayerKind::kTransposedConvolution:
      return "conv_transpose";
    case LayerKind::kUpsample:
      return "upsample";
    case LayerKind::kAdaptiveAveragePool:
      return "adaptive_average_pool";
    case LayerKind::kAdaptiveMaxPool:
      return "adaptive_max_pool";
    case LayerKind::kFlatten:
      return "flatten";
    case LayerKind::kGroupNorm:
      return "group_norm";
    case LayerKind::kInstanceNorm:
      return "instance_norm";
    case LayerKind::kLayerNorm:
      return "layer_norm";
    case LayerKind::kResidualBlock:
      return "residual";
  }
  return "";
}

std::vector<LayerRow> explain(const Experiment& experiment, const RankPlan& plan) {
  Problems problems(experiment.file);
  const auto sizes = layer_sizes(experiment, problems);
  problems.throw_if_any();
  const auto& layers = experiment.model.layers;
  std::size_t last_linear = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].kind == LayerKind::kLinear) last_linear = i;
  }
  Rows rows(plan);
  bool whole = false;
  for (std::size_t i = 0; i < layers.size(); ++i) rows.add(layers[i], sizes[i], i < last_linear, whole);
  return rows.all();
}

}  // namespace weft::experiment
