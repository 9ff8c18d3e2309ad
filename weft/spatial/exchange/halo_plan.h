// One rank's part of an exchange of cells between tiles: the pieces that it sends and receives, and the result.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>

#include "weft/mpi/communicator.h"
#include "weft/partition/exchange_list.h"
#include "weft/spatial/exchange/epoch.h"
#include "weft/spatial/exchange/exchange_buffers.h"

namespace weft::spatial {

// Created once per geometry and reused in every step. Plans of different ranks differ only in the rank.
class HaloPlan : public torch::CustomClassHolder {
 public:
  // All plans of a communicator share an epoch.
  HaloPlan(CommunicatorPtr comm, std::shared_ptr<Epoch> epoch, partition::Geometry geometry);

  [[nodiscard]] const CommunicatorPtr& comm() const noexcept { return comm_; }
  [[nodiscard]] const partition::Geometry& geometry() const noexcept { return geometry_; }
  [[nodiscard]] const partition::ExchangeList& list() const noexcept { return list_; }
  [[nodiscard]] std::size_t dims() const noexcept { return geometry_.shape.size(); }
  // This rank's tile, the box that it needs, and the part of the box that is not padding.
  [[nodiscard]] const partition::Box& owned() const noexcept { return geometry_.owned[me_]; }
  [[nodiscard]] const partition::Box& needed() const noexcept { return geometry_.needed[me_]; }
  [[nodiscard]] const partition::Box& covered() const noexcept { return covered_; }

  // Properties of all ranks, so that all ranks decide alike. A plan that only crops returns a view of the tile.
  [[nodiscard]] bool communicates() const noexcept { return communicates_; }
  [[nodiscard]] bool only_crops() const noexcept { return only_crops_; }
  // A hash of the geometry; equal on ranks that made the same plan.
  [[nodiscard]] std::int64_t signature() const noexcept { return signature_; }

  // Buffers that exchanges by this plan reuse.
  [[nodiscard]] ExchangeBufferPool& buffers() const noexcept { return buffers_; }
  [[nodiscard]] Epoch& epoch() const noexcept { return *epoch_; }

  // Returns the leading sizes of `like` followed by the sizes of `box`.
  [[nodiscard]] Sizes sizes(const at::Tensor& like, const partition::Box& box) const;
  // Throws (TORCH_CHECK) if the last sizes of `x` differ from those of `box`.
  void require_box(const at::Tensor& x, const partition::Box& box, const char* what) const;

 private:
  CommunicatorPtr comm_;
  std::shared_ptr<Epoch> epoch_;
  mutable ExchangeBufferPool buffers_;
  partition::Geometry geometry_;
  std::size_t me_;
  partition::ExchangeList list_;
  partition::Box covered_;
  bool communicates_;
  bool only_crops_;
  std::int64_t signature_;
};

using HaloPlanPtr = c10::intrusive_ptr<HaloPlan>;

// Registers the class with torch. Registrations of operations on plans call it first, because the order of static
// initialization is not defined. Later calls have no effect.
void register_halo_plan();

}  // namespace weft::spatial
