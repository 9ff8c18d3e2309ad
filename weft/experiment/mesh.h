// The job's ranks as the experiment splits them: groups that share a batch, and in each a grid of tiles.
#pragma once

#include <memory>

#include "weft/experiment/layer_spec.h"
#include "weft/experiment/problems.h"
#include "weft/experiment/sizes.h"
#include "weft/spatial/dist_tensor.h"

namespace weft::experiment {

struct Experiment;

using spatial::Comm;

// How `ranks` ranks share the work: pure arithmetic.
struct RankPlan {
  std::int64_t shards = 1;  // groups, each with a part of every batch
  Sizes tiles{1, 1};        // rows and columns of each group
  std::int64_t copies = 1;  // ranks that hold the same: those of a network whose layers are spread instead
  bool unsplit = false;     // by the experiment, on any number of ranks
};

// Rows and columns as equal as the number allows, rows at least as many.
[[nodiscard]] Sizes squarest_grid(std::int64_t ranks);
// Throws ExperimentError for a number of ranks that the experiment or its images do not allow.
[[nodiscard]] RankPlan plan_ranks(const Experiment& experiment, std::int64_t ranks);

class Mesh {
 public:
  // Collective over `world`.
  Mesh(const Comm& world, const RankPlan& plan);

  [[nodiscard]] const RankPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const Comm& world() const noexcept { return world_; }
  // The ranks with other parts of this rank's images, as a grid; and as a row, for vectors.
  [[nodiscard]] const spatial::RankGridPtr& tiles() const noexcept { return tiles_; }
  [[nodiscard]] const spatial::RankGridPtr& row() const noexcept { return row_; }
  // The ranks with the same tile of other images.
  [[nodiscard]] const Comm& shards() const noexcept { return shards_; }
  // A field's tiles; a vector's parts.
  [[nodiscard]] spatial::LayoutPtr layout(const Sizes& shape) const;

 private:
  RankPlan plan_;
  Comm world_;
  Comm shards_;
  spatial::RankGridPtr tiles_;
  spatial::RankGridPtr row_;
};

}  // namespace weft::experiment
