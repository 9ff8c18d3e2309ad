// Maps ranks to work: groups of ranks share each batch, and the ranks of a group form a grid of tiles.
#pragma once

#include "weft/experiment/file/layer_spec.h"
#include "weft/experiment/file/problems.h"
#include "weft/spatial/dist_tensor.h"

namespace weft::experiment {

struct Experiment;

// How a number of ranks shares the work. Pure arithmetic.
struct RankPlan {
  std::int64_t shards = 1;  // groups; each processes a part of every batch
  Sizes tiles{1, 1};        // rows and columns of tiles in each group
  std::int64_t copies = 1;  // ranks with the same data, if the layers are distributed instead
  bool unsplit = false;     // the experiment disables splitting
};

// Returns the rows and columns of the squarest grid, with at least as many rows as columns.
[[nodiscard]] Sizes squarest_grid(std::int64_t ranks);
// Throws ExperimentError if the experiment or its images do not allow this number of ranks.
[[nodiscard]] RankPlan plan_ranks(const Experiment& experiment, std::int64_t ranks);

class Mesh {
 public:
  // Collective over `world`.
  Mesh(const CommunicatorPtr& world, const RankPlan& plan);

  [[nodiscard]] const RankPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const CommunicatorPtr& world() const noexcept { return world_; }
  // The group of ranks with the same images: as a grid for images, and as a row for vectors.
  [[nodiscard]] const spatial::RankGridPtr& tiles() const noexcept { return tiles_; }
  [[nodiscard]] const spatial::RankGridPtr& row() const noexcept { return row_; }
  // The ranks with the same tile in all groups.
  [[nodiscard]] const CommunicatorPtr& shards() const noexcept { return shards_; }
  // The layout of an image (two sizes) or a vector (one size) over the group.
  [[nodiscard]] spatial::LayoutPtr layout(const Sizes& shape) const;

 private:
  RankPlan plan_;
  CommunicatorPtr world_;
  CommunicatorPtr shards_;
  spatial::RankGridPtr tiles_;
  spatial::RankGridPtr row_;
};

}  // namespace weft::experiment
