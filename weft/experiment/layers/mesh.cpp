#include "weft/experiment/layers/mesh.h"

#include <algorithm>
#include <optional>

#include "weft/experiment/file/description.h"
#include "weft/experiment/file/sizes.h"
#include "weft/mpi/communicator.h"

namespace weft::experiment {
namespace {

[[noreturn]] void reject(const Experiment& experiment, const std::string& text) {
  throw ExperimentError(located(experiment.file, experiment.place, text));
}

bool spreads_layers(const Experiment& experiment) {
  bool found = false;
  for_each_layer(experiment.model.layers,
                 [&](const LayerSpec& layer) { found = found || layer.settings->depth() > 0; });
  return found;
}

RankPlan unsplit(const Experiment& experiment, std::int64_t ranks) {
  if (ranks > 1 && !spreads_layers(experiment)) {
    reject(experiment, "this experiment is not split and needs 1 rank, got " + std::to_string(ranks) +
                           "; set `split: tiles` or `split: batch` (neon form: dist_flag and the Dist classes)");
  }
  return {.copies = ranks, .unsplit = true};
}

void require_strict(const Experiment& experiment, std::int64_t ranks) {
  if (ranks == 1 || ranks == 4 || ranks == 16) return;
  reject(experiment, "strict_neon requires 1, 4 or 16 ranks, got " + std::to_string(ranks));
}

// Every tile must contain pixels.
void require_cells(const Experiment& experiment, const RankPlan& plan) {
  const Extent image = image_extent(experiment.dataset);
  for (std::size_t i = 0; i < plan.tiles.size(); ++i) {
    if (plan.tiles[i] <= image.shape[i]) continue;
    reject(experiment, "the images, " + image.describe() + ", allow at most " + std::to_string(image.shape[i]) +
                           (i == 0 ? " rows" : " columns") + " of tiles, got " + std::to_string(plan.tiles[i]));
  }
}

bool fits(const Sizes& tiles, const Sizes& image) { return tiles[0] <= image[0] && tiles[1] <= image[1]; }

// Returns the squarest grid whose tiles contain pixels. Of two equally square grids, the one with more rows wins.
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

// Returns the nearest usable rank count; of two, the smaller. One rank always works.
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
  reject(experiment, std::to_string(ranks) + " ranks cannot form rows and columns of tiles for images of " +
                         image.describe() + "; the nearest possible number is " +
                         std::to_string(nearest_that_fits(tiles, image.shape) * shards));
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
    reject(experiment, "batch_parts requires a multiple of " + std::to_string(plan.shards) + " ranks, got " +
                           std::to_string(ranks));
  }
  plan.tiles = split.grid ? *split.grid : grid_of(experiment, ranks, plan.shards);
  if (plan.tiles[0] * plan.tiles[1] * plan.shards != ranks) {
    reject(experiment, "the grid in the file needs " + std::to_string(plan.tiles[0] * plan.tiles[1] * plan.shards) +
                           " ranks, got " + std::to_string(ranks));
  }
  if (plan.shards > experiment.model.batch_size) {
    reject(experiment, "a batch of " + std::to_string(experiment.model.batch_size) + " images cannot be split into " +
                           std::to_string(plan.shards) + " parts; use fewer ranks or a larger batch_size");
  }
  require_cells(experiment, plan);
  return plan;
}

Mesh::Mesh(const CommunicatorPtr& world, const RankPlan& plan) : plan_(plan), world_(world) {
  const int rank = world->rank();
  const auto per_shard = static_cast<int>(plan.tiles[0] * plan.tiles[1]);
  const bool copies = plan.copies > 1;
  const int shard = copies ? rank : rank / per_shard;
  const int tile = copies ? rank : rank % per_shard;
  const CommunicatorPtr same_images = Communicator::adopt(world->origin().split(shard, rank));
  shards_ = Communicator::adopt(world->origin().split(tile, rank));
  tiles_ = c10::make_intrusive<spatial::RankGrid>(same_images, plan.tiles);
  row_ = c10::make_intrusive<spatial::RankGrid>(same_images, Sizes{plan.tiles[0] * plan.tiles[1]});
}

spatial::LayoutPtr Mesh::layout(const Sizes& shape) const {
  return spatial::Layout::balanced(shape.size() == 1 ? row_ : tiles_, shape);
}

}  // namespace weft::experiment
