// The ranks as a grid of tiles, with a communicator of their own and the plans of the exchanges made so far.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "weft/partition/grid.h"
#include "weft/partition/tiling.h"
#include "weft/spatial/halo_plan.h"

namespace weft::spatial {

struct Rim;

// A plan, how the results of the layer that made it are tiled, and which of them are at the edges of tiles.
struct Route {
  c10::intrusive_ptr<HaloPlan> plan;
  partition::Tiling outputs;
  std::shared_ptr<const Rim> rim = nullptr;
};

class RankGrid : public torch::CustomClassHolder {
 public:
  // Collective. Works on a duplicate of `comm`: users' messages never meet ours. Throws (TORCH_CHECK) on every rank
  // unless the extents' product is the number of ranks.
  RankGrid(const Comm& comm, std::vector<std::int64_t> extents);

  [[nodiscard]] const Comm& comm() const noexcept { return comm_; }
  [[nodiscard]] const partition::Grid& grid() const noexcept { return grid_; }
  [[nodiscard]] std::int64_t rank() const noexcept { return comm_->rank(); }
  [[nodiscard]] std::int64_t size() const noexcept { return comm_->size(); }

  [[nodiscard]] const std::shared_ptr<Epoch>& epoch() const noexcept { return epoch_; }

  // The route made before for these numbers, or the one that `make` makes now.
  [[nodiscard]] const Route& route(const std::vector<std::int64_t>& key, const std::function<Route()>& make);

 private:
  partition::Grid grid_;
  Comm comm_;
  std::shared_ptr<Epoch> epoch_ = std::make_shared<Epoch>();
  std::mutex mutex_;
  std::map<std::vector<std::int64_t>, Route> routes_;
};

using RankGridPtr = c10::intrusive_ptr<RankGrid>;

}  // namespace weft::spatial
