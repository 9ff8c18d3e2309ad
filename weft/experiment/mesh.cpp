#include "weft/experiment/mesh.h"

#include <algorithm>
#include <optional>

#include "weft/experiment/description.h"
#include "weft/experiment/layer_output.h"
#include "weft/mpi/team.h"

namespace weft::experiment {
namespace {

[[noreturn]] void refuse(const Experiment& experiment, const std::string& text) {
  throw ExperimentError(located(experiment.file, experiment.place, text));
}

bool spreads_layers(const Experiment& experiment) {
  bool found = false;
  for_each_layer(experiment.model.layers,
                 [&](const LayerSpec& layer) { found = found || layer.kind == LayerKind::kResidualStack; });
  return found;
}

RankPlan unsplit(const Experiment& experiment, std::int64_t ranks) {
  if (ranks > 1 && !spreads_layers(experiment)) {
    refuse(experiment, "expected 1 rank, because this experiment is not split, got " + std::to_string(ranks) +
                           "; set dist_flag and the Dist classes in neon's form, split: tiles or batch in weft's");
  }
  return {.copies = ranks, .unsplit = true};
}

void require_strict(const Experiment& experiment, std::int64_t ranks) {
  if (ranks == 1 || ranks == 4 || ranks == 16) return;
  refuse(experiment, "expected 1, 4 or 16 ranks with strict_neon, got " + std::to_string(ranks));
}

// A tile without any image cells would only wait for the others.
void require_cells(const Experiment& experiment, const RankPlan& plan) {
  const Extent image = image_extent(experiment.dataset);
  for (std::size_t i = 0; i < plan.tiles.size(); ++i) {
    if (plan.tiles[i] <= image.shape[i]) continue;
    refuse(experiment, "expected at most " + std::to_string(image.shape[i]) + (i == 0 ? " rows" : " columns") +
                           " of tiles, because images are " + image.describe() + ", got " +
                           std::to_string(plan.tiles[i]));
  }
}

bool fits(const Sizes& tiles, const Sizes& image) { return tiles[0] <= image[0] && tiles[1] <= image[1]; }

// The squarest one whose tiles have cells; of two that are as square the one with more rows.
std::optional<Sizes> fitting_grid(std::int64_t ranks, const Sizes& image) {
  std::optional<Sizes> best;
  for (std::int64_t short_side = 1; short_side * short_side <= ranks; ++short_side) {
    if (ranks % short_side != 0) continue;
    for (const Sizes& tiles : {Sizes{short_side, ranks / short_side}, Sizes{ranks / short_side, short_side}}) {
      if (fits(tiles, image)) best = tiles;
    }
  }
  return best;
}

// Of two that are as near the smaller: one rank always does.
std::int64_t nearest_that_fits(std::int64_t ranks, const Sizes& image) {
  const std::int64_t cells = image[0] * image[1];
  if (ranks >= cells) return cells;
  for (std::int64_t distance = 1;; ++distance) {
    if (fitting_grid(ranks - distance, image)) return ranks - distance;
    if (fitting_grid(ranks + distance, image)) return ranks + distance;
  }
}

Sizes grid_of(const Experiment& experiment, std::int64_t ranks, std::int64_t shards) {
  const Extent image = image_extent(experiment.dataset);
  const std::int64_t tiles = ranks / shards;
  if (const auto found = fitting_grid(tiles, image.shape)) return *found;
  refuse(experiment, "expected ranks that can form rows and columns of tiles, because images are " + image.describe() +
                         "; the nearest number is " + std::to_string(nearest_that_fits(tiles, image.shape) * shards) +
                         ", got " + std::to_string(ranks));
}

}  // namespace

Sizes squarest_grid(std::int64_t ranks) { return *fitting_grid(ranks, {ranks, ranks}); }

RankPlan plan_ranks(const Experiment& experiment, std::int64_t ranks) {
  const SplitSpec& split = experiment.split;
  if (split.strict_neon) require_strict(experiment, ranks);
  if (split.mode == SplitSpec::Mode::kNone) return unsplit(experiment, ranks);
  RankPlan plan;
  plan.shards = split.mode == SplitSpec::Mode::kBatch ? ranks : std::min(split.batch_parts, ranks);
  if (ranks % plan.shards != 0) {
    refuse(experiment, "expected a multiple of " + std::to_string(plan.shards) + " ranks, one group for each part of " +
                           "a batch, got " + std::to_string(ranks));
  }
  plan.tiles = split.grid ? *split.grid : grid_of(experiment, ranks, plan.shards);
  if (plan.tiles[0] * plan.tiles[1] * plan.shards != ranks) {
    refuse(experiment, "expected " + std::to_string(plan.tiles[0] * plan.tiles[1] * plan.shards) +
                           " ranks for the grid in the file, got " + std::to_string(ranks));
  }
  if (plan.shards > experiment.model.batch_size) {
    refuse(experiment, "expected at most " + std::to_string(experiment.model.batch_size) +
                           " parts of a batch, one image each, got " + std::to_string(plan.shards));
  }
  require_cells(experiment, plan);
  return plan;
}

Mesh::Mesh(const Comm& world, const RankPlan& plan) : plan_(plan), world_(world) {
  const int rank = world->rank();
  const auto per_shard = static_cast<int>(plan.tiles[0] * plan.tiles[1]);
  const bool copies = plan.copies > 1;
  const int shard = copies ? rank : rank / per_shard;
  const int tile = copies ? rank : rank % per_shard;
  const Comm same_images = mpi::Team::adopt(world->origin().split(shard, rank));
  shards_ = mpi::Team::adopt(world->origin().split(tile, rank));
  tiles_ = c10::make_intrusive<spatial::RankGrid>(same_images, plan.tiles);
  row_ = c10::make_intrusive<spatial::RankGrid>(same_images, Sizes{plan.tiles[0] * plan.tiles[1]});
}

spatial::LayoutPtr Mesh::layout(const Sizes& shape) const {
  return spatial::Layout::balanced(shape.size() == 1 ? row_ : tiles_, shape);
}

}  // namespace weft::experiment
