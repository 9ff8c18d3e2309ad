#include "weft/layer_parallel/plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>

namespace weft::layer_parallel {
namespace {

using multigrid::HierarchyOptions;
using multigrid::TimeHierarchy;

std::int64_t checked(std::int64_t layers) {
  if (layers < 1) throw std::invalid_argument("weft: expected at least one layer, got " + std::to_string(layers));
  return layers;
}

double checked(double tf) {
  if (!std::isfinite(tf)) throw std::invalid_argument("weft: expected a finite tf, got " + std::to_string(tf));
  return tf;
}

HierarchyOptions options_for(double tf, const GridOptions& grid) {
  HierarchyOptions options;
  options.max_levels = grid.levels;
  options.coarsening = grid.coarsening;
  options.min_coarse_steps = grid.min_coarse_steps;
  options.t_end = tf;
  return options;
}

TimeHierarchy forward_hierarchy(std::int64_t layers, int ranks, double tf, const GridOptions& grid) {
  HierarchyOptions options = options_for(tf, grid);
  options.offsets.push_back(0);
  for (int rank = 1; rank < ranks; ++rank) {
    options.offsets.push_back(partition::balanced(layers, ranks, rank).begin + 1);
  }
  options.offsets.push_back(layers + 1);
  return {layers, ranks, options};
}

// The adjoint solve runs backward in time, so its offsets list the ranks in reverse order. Its point 0 is the last
// point of the forward solve; the last rank that has layers owns it.
TimeHierarchy adjoint_hierarchy(std::int64_t layers, int ranks, double tf, const GridOptions& grid) {
  HierarchyOptions options = options_for(tf, grid);
  for (int rank = ranks - 1; rank >= 0; --rank) {
    const std::int64_t end = partition::balanced(layers, ranks, rank).end;
    options.offsets.push_back(end == layers ? 0 : layers - end + 1);
  }
  options.offsets.push_back(layers + 1);
  return {layers, ranks, options};
}

}  // namespace

Plan::Plan(std::int64_t layers, int ranks, double tf, const GridOptions& forward, const GridOptions& backward)
    : layers_(checked(layers)),
      ranks_(ranks),
      tf_(checked(tf)),
      forward_(forward_hierarchy(layers, ranks, tf, forward)),
      adjoint_(adjoint_hierarchy(layers, ranks, tf, backward)) {}

std::vector<std::int64_t> Plan::borrowed(int rank) const {
  const partition::Range own = layers_of(rank);
  std::set<std::int64_t> needed;
  for (int level = 1; level < forward_.levels(); ++level) {
    const partition::Range points = forward_.points(level, rank);
    for (std::int64_t point = std::max<std::int64_t>(points.begin, 1); point < points.end; ++point) {
      const std::int64_t layer = forward_.step(level, point - 1).fine_start;
      if (!own.contains(layer)) needed.insert(layer);
    }
  }
  return {needed.begin(), needed.end()};
}

}  // namespace weft::layer_parallel
