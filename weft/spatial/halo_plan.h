// One rank's part in an exchange of cells between tiles: what it sends, what it gets, and into what it assembles them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/mpi/team.h"
#include "weft/partition/exchange_list.h"
#include "weft/spatial/epoch.h"
#include "weft/spatial/lane.h"

namespace weft::spatial {

using Comm = std::shared_ptr<mpi::Team>;

// Made once for a geometry and used in every step. The same on all ranks up to the rank itself.
class HaloPlan : public torch::CustomClassHolder {
 public:
  // All plans of a team share an epoch.
  HaloPlan(Comm comm, std::shared_ptr<Epoch> epoch, partition::Geometry geometry);

  [[nodiscard]] const Comm& comm() const noexcept { return comm_; }
  [[nodiscard]] const partition::Geometry& geometry() const noexcept { return geometry_; }
  [[nodiscard]] const partition::ExchangeList& list() const noexcept { return list_; }
  [[nodiscard]] std::size_t dims() const noexcept { return geometry_.shape.size(); }
  // This rank's tile, what it needs, and the part of that which is not padding.
  [[nodiscard]] const partition::Box& owned() const noexcept { return geometry_.owned[me_]; }
  [[nodiscard]] const partition::Box& needed() const noexcept { return geometry_.needed[me_]; }
  [[nodiscard]] const partition::Box& covered() const noexcept { return covered_; }

  // Facts about all ranks, so that all decide alike. A plan that only crops is a view of the tile.
  [[nodiscard]] bool communicates() const noexcept { return communicates_; }
  [[nodiscard]] bool only_crops() const noexcept { return only_crops_; }
  // A number for the geometry, equal where the ranks made the same plan.
  [[nodiscard]] std::int64_t signature() const noexcept { return signature_; }

  // What exchanges by this plan use again.
  [[nodiscard]] LaneStore& lanes() const noexcept { return lanes_; }
  [[nodiscard]] Epoch& epoch() const noexcept { return *epoch_; }

  // The sizes of a tensor whose last dimensions are those of `box`, its leading ones those of `like`.
  [[nodiscard]] std::vector<std::int64_t> sizes(const at::Tensor& like, const partition::Box& box) const;
  // Throws (TORCH_CHECK) unless the last dimensions of `x` are those of `box`.
  void require_box(const at::Tensor& x, const partition::Box& box, const char* what) const;

 private:
  Comm comm_;
  std::shared_ptr<Epoch> epoch_;
  mutable LaneStore lanes_;
  partition::Geometry geometry_;
  std::size_t me_;
  partition::ExchangeList list_;
  partition::Box covered_;
  bool communicates_;
  bool only_crops_;
  std::int64_t signature_;
};

using HaloPlanPtr = c10::intrusive_ptr<HaloPlan>;

}  // namespace weft::spatial
