// The rim of a tile: the halo's share of the outputs at the edges.
//
// A tile convolved with zeros around it has all its outputs; those at the edges to other tiles only lack the share of
// the halo. Instead of copying the tile into a larger buffer, weft convolves the halo separately with the taps of the
// kernel that reach it, and adds the result.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/partition/border.h"
#include "weft/partition/tiling.h"
#include "weft/partition/window.h"
#include "weft/spatial/exchange/sizes.h"

namespace weft::spatial {

struct Rim {
  // A slab of the halo before or after the tile in dimension `dim`.
  struct Part {
    partition::Box halo;     // cells of the slab; slabs do not overlap
    partition::Box inputs;   // inputs of the convolution: the halo, and zeros elsewhere
    partition::Box outputs;  // outputs to which it adds; parts may overlap
    std::size_t dim = 0;
    partition::Range taps;  // taps of the kernel in `dim`; all taps in other dimensions
    Sizes padding;          // by dimension
  };
  std::vector<Part> parts;  // parts of this rank's halo
  Sizes padding;            // by dimension; gives the tile the right number of outputs
  double heaviest = 0;      // ratio of the halo's work to the tile's; maximum over all ranks
};

// Returns null if the tile of any rank lacks outputs without its halo. The result is null on all ranks or on none.
// `native` marks the dimensions that are not cut, in which torch's kernel pads.
[[nodiscard]] std::shared_ptr<const Rim> rim_of(const partition::Tiling& inputs, const partition::Tiling& outputs,
                                                const std::vector<partition::Window>& windows,
                                                const std::vector<bool>& native, partition::Border border,
                                                std::int64_t rank);

}  // namespace weft::spatial
