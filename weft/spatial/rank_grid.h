// The ranks as a grid of tiles, with their own communicator and a cache of exchange plans.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "weft/partition/grid.h"
#include "weft/partition/tiling.h"
#include "weft/spatial/exchange/halo_plan.h"
#include "weft/spatial/exchange/sizes.h"

namespace weft::spatial {

struct Rim;

// A cached exchange: its plan, the tiles of the results, and the rim of this rank's tile (convolution/rim.h).
struct Route {
  c10::intrusive_ptr<HaloPlan> plan;
  partition::Tiling outputs;
  std::shared_ptr<const Rim> rim = nullptr;
};

class RankGrid : public torch::CustomClassHolder {
 public:
  // Duplicates `comm`, so that messages of the caller cannot interfere. Throws (TORCH_CHECK) on every rank if the
  // product of the extents is not the number of ranks. Collective.
  RankGrid(const CommunicatorPtr& comm, Sizes extents);

  [[nodiscard]] const CommunicatorPtr& comm() const noexcept { return comm_; }
  [[nodiscard]] const partition::Grid& grid() const noexcept { return grid_; }
  [[nodiscard]] std::int64_t rank() const noexcept { return comm_->rank(); }
  [[nodiscard]] std::int64_t size() const noexcept { return comm_->size(); }

  [[nodiscard]] const std::shared_ptr<Epoch>& epoch() const noexcept { return epoch_; }

  // Returns the cached route for this key, or creates it with `make`.
  [[nodiscard]] const Route& route(const Sizes& key, const std::function<Route()>& make);

 private:
  partition::Grid grid_;
  CommunicatorPtr comm_;
  std::shared_ptr<Epoch> epoch_ = std::make_shared<Epoch>();
  std::mutex mutex_;
  std::map<Sizes, Route> routes_;
};

using RankGridPtr = c10::intrusive_ptr<RankGrid>;

}  // namespace weft::spatial
