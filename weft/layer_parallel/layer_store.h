// The layers on this rank: its own, and copies of layers of other ranks for its coarse steps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "weft/layer_parallel/layer.h"
#include "weft/layer_parallel/pass_functions.h"
#include "weft/layer_parallel/plan.h"
#include "weft/mpi/communicator.h"

namespace weft::layer_parallel {

class LayerStore {
 public:
  // layers: by number; at least this rank's own and borrowed ones. Others are dropped. Borrowed layers must be copies
  // with separate parameters and buffers.
  LayerStore(const Plan& plan, int rank, std::map<std::int64_t, Layer> layers);

  [[nodiscard]] Layer& operator[](std::int64_t number) { return layers_.at(number); }
  [[nodiscard]] bool own(std::int64_t number) const { return own_.contains(number); }

  // Collective. Updates the borrowed layers: their owners send parameters, buffers and descriptions that changed since
  // the last call. Failures of `functions` become the Layer::problem of the layer.
  void refresh(Communicator& communicator, const PassFunctions& functions);

  // Replaces a layer's parameter and buffer tensors.
  void rebind(std::int64_t number, Tensors parameters, Tensors buffers);

 private:
  struct Loan {  // a layer that a rank copies from its owner
    std::int64_t layer;
    int peer;
    std::shared_ptr<std::vector<std::byte>> held;  // on the owner: the values that it last sent
  };

  void adopt(const Loan& loan, const std::vector<std::byte>& message, const PassFunctions& functions);

  partition::Range own_;
  std::map<std::int64_t, Layer> layers_;
  std::vector<Loan> lent_;
  std::vector<Loan> borrowed_;
};

}  // namespace weft::layer_parallel
