// Halo regions of a network: which consecutive layers share one exchange, whether that is faster, and the layer that
// runs them. weft/spatial/region.h computes the cells that each layer needs.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/spatial/nn/layer.h"

namespace weft::spatial::nn {

// A layer of a network that may join a halo region.
struct RegionCandidate {
  std::int64_t source = -1;  // index of the layer whose output it reads; -1 for another tensor
  std::int64_t users = 1;    // number of layers that read its output
  bool joins = false;        // true if it runs on tiles, returns tiles and can be in a region
  bool exchanges = false;    // true if it needs a halo
};

// Returns the indices of the layers of each region: the longest chains with at least two layers that exchange, each
// starting and ending with such a layer. Candidates must be in the order of execution.
[[nodiscard]] std::vector<Sizes> region_chains(const std::vector<RegionCandidate>& candidates);

// Number of timed runs; one more run before them warms up.
inline constexpr std::int64_t kTimingRounds = 5;

// Compares the medians of the runs' times, in seconds, on the slowest rank. All ranks get the same answer. Collective.
[[nodiscard]] bool is_faster(std::vector<double> candidate, std::vector<double> present, const CommunicatorPtr& comm);

// Returns a layer that runs `layers` on tiles of `layout` after one exchange and calls `one_by_one` for other values.
// Throws std::invalid_argument if the layers do not fit behind one exchange.
[[nodiscard]] LayerPtr halo_region(std::vector<RegionLayer> layers, const LayoutPtr& layout, LayerPtr one_by_one);

}  // namespace weft::spatial::nn
