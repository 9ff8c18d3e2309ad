// The layers on this rank: its own, and those of other ranks whose weights its coarse steps borrow.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "weft/layer_parallel/layer.h"
#include "weft/layer_parallel/plan.h"
#include "weft/mpi/team.h"

namespace weft::layer_parallel {

class LayerStore {
 public:
  // `layers` holds at least the rank's own and borrowed ones, by number; others are dropped. Borrowed layers must be
  // copies with parameters and buffers of their own.
  LayerStore(const Plan& plan, int rank, std::map<std::int64_t, Layer> layers);

  [[nodiscard]] Layer& operator[](std::int64_t number) { return layers_.at(number); }
  [[nodiscard]] bool own(std::int64_t number) const { return own_.contains(number); }

  // Collective. Brings the borrowed layers up to date: their owners send parameters and buffers, packed, if those
  // changed since they were last sent.
  void refresh(mpi::Team& team);

  // Replaces a layer's parameters and buffers where the user's module got new ones.
  void rebind(std::int64_t number, Tensors parameters, Tensors buffers);

 private:
  struct Loan {  // from owner to borrower
    std::int64_t layer;
    int peer;
    std::shared_ptr<std::vector<std::byte>> held;  // the owner's note of what the borrower has
  };

  partition::Range own_;
  std::map<std::int64_t, Layer> layers_;
  std::vector<Loan> lent_;
  std::vector<Loan> borrowed_;
};

}  // namespace weft::layer_parallel
