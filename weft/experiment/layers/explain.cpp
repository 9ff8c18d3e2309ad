#include "weft/experiment/file/description.h"
#include "weft/experiment/file/layer_type.h"
#include "weft/experiment/file/sizes.h"
#include "weft/experiment/layers/network.h"

namespace weft::experiment {
namespace {

// Returns "14 x 14" for equal tiles, "4-5 x 28" for tiles of different heights.
std::string tiles_text(const Sizes& shape, const Sizes& grid) {
  std::string text;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int64_t most = (shape[i] + grid[i] - 1) / grid[i];
    const std::int64_t least = shape[i] / grid[i];
    text.append(i == 0 ? "" : " x ").append(std::to_string(least));
    if (most > least) text.append("-").append(std::to_string(most));
  }
  return text;
}

std::string cut_of(const Extent& out, const RankPlan& plan, bool in_parts) {
  const std::int64_t tiles = plan.tiles[0] * plan.tiles[1];
  if (!out.shape.empty()) return tiles_text(out.shape, plan.tiles);
  return in_parts ? tiles_text({out.maps}, {tiles}) : "whole";
}

// Returns "whole, 2-3 of 8 layers" if the ranks share the layers of a stack.
std::string stack_text(std::int64_t depth, const std::string& field, const RankPlan& plan) {
  if (depth == 0 || plan.copies == 1) return field;
  return field + ", " + tiles_text({depth}, {plan.copies}) + " of " + std::to_string(depth) + " layers";
}

// Adds the rows of a layer, inner layers first. `whole` is true if every rank has the whole input vector. Returns true
// if every rank gets the whole output vector.
bool add_rows(const LayerSpec& layer, const LayerSizes& sizes, const RankPlan& plan, bool linear_follows, bool whole,
              std::vector<LayerRow>& rows) {
  LayerSettings& settings = *layer.settings;
  bool result = settings.output_is_whole(whole, linear_follows);
  const auto branches = settings.branches();
  for (std::size_t b = 0; b < branches.size(); ++b) {
    bool inner = whole;
    for (std::size_t i = 0; i < branches[b].layers.size(); ++i)
      inner = add_rows(branches[b].layers[i], sizes.branches[b][i], plan, linear_follows, inner, rows);
    result = (b == 0 || result) && inner;
  }
  const std::string has = stack_text(settings.depth(), cut_of(sizes.out, plan, !result), plan);
  rows.push_back({layer.name, layer.type->name, sizes.out.describe(), has, settings.parameter_count(sizes)});
  return result;
}

}  // namespace

std::vector<LayerRow> explain(const Experiment& experiment, const RankPlan& plan) {
  Problems problems(experiment.file);
  const auto sizes = layer_sizes(experiment, problems);
  problems.throw_if_any();
  const auto& layers = experiment.model.layers;
  std::vector<LayerRow> rows;
  bool whole = false;
  for (std::size_t i = 0; i < layers.size(); ++i)
    whole = add_rows(layers[i], sizes[i], plan, linear_follows(layers, i), whole, rows);
  return rows;
}

}  // namespace weft::experiment
