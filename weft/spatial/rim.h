// The outputs at a tile's edges, which need a halo, apart from the rest, which the tile has by itself.
//
// A tile convolved with zeros around it has all its outputs, and only those at the edges to other tiles are wrong. So
// the tile need not be copied into a larger buffer: the edges are computed again, from small buffers that the halo is
// put in.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/partition/border.h"
#include "weft/partition/tiling.h"
#include "weft/partition/window.h"

namespace weft::spatial {

struct Rim {
  // A slab of outputs and the inputs that it needs.
  struct Part {
    partition::Box outputs;
    partition::Box inputs;
  };
  std::vector<Part> parts;            // of this rank; no two share an output
  std::vector<std::int64_t> padding;  // with which this rank's tile has as many outputs as it should, by dimension
  double heaviest = 0;                // the largest share of a tile's outputs that are computed again, of all ranks
};

// Null unless every rank's tile has all its outputs by itself; so all ranks decide alike. `native` says in which
// dimensions nothing is cut and the kernel pads.
[[nodiscard]] std::shared_ptr<const Rim> rim_of(const partition::Tiling& inputs, const partition::Tiling& outputs,
                                                const std::vector<partition::Window>& windows,
                                                const std::vector<bool>& native, partition::Border border,
                                                std::int64_t rank);

}  // namespace weft::spatial
