// Which rank holds which layers, and the time grids of both directions. Pure arithmetic.
//
// Layer k leads from point k to point k + 1. A rank owns the points its layers lead to, so that it takes its own steps
// forward; in the adjoint run, where time is N - point and ranks count from the other end, it owns the points its
// layers start from, and takes its own steps again. Coarse steps use the weights of the layer at the beginning of their
// interval: forward that layer may be another rank's, in the adjoint run it never is.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/multigrid/hierarchy.h"
#include "weft/multigrid/per_level.h"
#include "weft/partition/range.h"

namespace weft::layer_parallel {

struct GridOptions {
  int levels = 1;
  multigrid::PerLevel<std::int64_t> coarsening{4};
  std::int64_t min_coarse_steps = 2;
};

class Plan {
 public:
  // Times run from 0 to `tf`.
  Plan(std::int64_t layers, int ranks, double tf, const GridOptions& forward, const GridOptions& backward);

  [[nodiscard]] std::int64_t layers() const noexcept { return layers_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  // The layers of a rank.
  [[nodiscard]] partition::Range layers_of(int rank) const { return partition::balanced(layers_, ranks_, rank); }
  [[nodiscard]] int owner(std::int64_t layer) const {
    return static_cast<int>(partition::owner(layers_, ranks_, layer));
  }
  // The last rank that holds a layer: the network's output appears there.
  [[nodiscard]] int last_rank() const { return owner(layers_ - 1); }

  [[nodiscard]] const multigrid::TimeHierarchy& forward() const noexcept { return forward_; }
  [[nodiscard]] const multigrid::TimeHierarchy& adjoint() const noexcept { return adjoint_; }

  // The size of a step that stands for `fine_steps` layers.
  [[nodiscard]] double dt(std::int64_t fine_steps = 1) const {
    return tf_ / static_cast<double>(layers_) * static_cast<double>(fine_steps);
  }

  // Layers of other ranks whose weights `rank` needs for its coarse steps forward, ascending.
  [[nodiscard]] std::vector<std::int64_t> borrowed(int rank) const;

 private:
  std::int64_t layers_;
  int ranks_;
  double tf_;
  multigrid::TimeHierarchy forward_;
  multigrid::TimeHierarchy adjoint_;
};

}  // namespace weft::layer_parallel
