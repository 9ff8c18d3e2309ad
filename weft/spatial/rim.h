// What a halo adds to the outputs of a tile, apart from what the tile has by itself.
//
// A tile convolved with zeros around it has all its outputs, and those at the edges to other tiles only lack what the
// halo adds. So the tile need not be copied into a larger buffer: the halo is convolved by itself, with those taps of
// the kernel that meet it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/partition/border.h"
#include "weft/partition/tiling.h"
#include "weft/partition/window.h"

namespace weft::spatial {

struct Rim {
  // A slab of the halo before or behind the tile in dimension `dim`.
  struct Part {
    partition::Box halo;     // its cells; no two parts share one
    partition::Box inputs;   // what is convolved: the halo, and zeros where that has no cells
    partition::Box outputs;  // what it adds to; parts may share some
    std::size_t dim = 0;
    partition::Range taps;              // of the kernel in `dim`; in other dimensions all
    std::vector<std::int64_t> padding;  // by dimension
  };
  std::vector<Part> parts;            // of this rank
  std::vector<std::int64_t> padding;  // with which this rank's tile has as many outputs as it should, by dimension
  double heaviest = 0;                // the halo's work as a share of the tile's; the largest of all ranks
};

// Null unless every rank's tile has all its outputs by itself; so all ranks decide alike. `native` says in which
// dimensions nothing is cut and the kernel pads.
[[nodiscard]] std::shared_ptr<const Rim> rim_of(const partition::Tiling& inputs, const partition::Tiling& outputs,
                                                const std::vector<partition::Window>& windows,
                                                const std::vector<bool>& native, partition::Border border,
                                                std::int64_t rank);

}  // namespace weft::spatial
