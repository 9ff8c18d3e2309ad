// The distribution of layers over ranks, and the time grids of both directions. Pure arithmetic.
//
// Layer k maps point k to point k + 1. In the forward solve a rank owns the points that its layers map to, so it
// computes its own steps. In the adjoint solve, time is N - point and ranks count backward: a rank owns the points that
// its layers start from and again computes its own steps. Coarse steps use the weights of the layer at the start of
// their interval: in the forward solve it may belong to another rank, in the adjoint solve it never does.
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
  // tf: the final time; times start at 0. Throws std::invalid_argument if layers < 1 or tf is not finite.
  Plan(std::int64_t layers, int ranks, double tf, const GridOptions& forward, const GridOptions& backward);

  [[nodiscard]] std::int64_t layers() const noexcept { return layers_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  // The layers of a rank.
  [[nodiscard]] partition::Range layers_of(int rank) const { return partition::balanced(layers_, ranks_, rank); }
  [[nodiscard]] int owner(std::int64_t layer) const {
    return static_cast<int>(partition::owner(layers_, ranks_, layer));
  }
  // The last rank that has a layer; it computes the output of the network.
  [[nodiscard]] int last_rank() const { return owner(layers_ - 1); }

  [[nodiscard]] const multigrid::TimeHierarchy& forward() const noexcept { return forward_; }
  [[nodiscard]] const multigrid::TimeHierarchy& adjoint() const noexcept { return adjoint_; }

  // The size of a step over `fine_steps` layers.
  [[nodiscard]] double dt(std::int64_t fine_steps = 1) const {
    return tf_ / static_cast<double>(layers_) * static_cast<double>(fine_steps);
  }

  // The layers of other ranks whose weights `rank` needs for coarse steps of the forward solve, ascending.
  [[nodiscard]] std::vector<std::int64_t> borrowed(int rank) const;

 private:
  std::int64_t layers_;
  int ranks_;
  double tf_;
  multigrid::TimeHierarchy forward_;
  multigrid::TimeHierarchy adjoint_;
};

}  // namespace weft::layer_parallel
