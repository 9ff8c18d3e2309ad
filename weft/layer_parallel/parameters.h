// The parameters of a rank's layers, each once, and the gradient sum of parameters that several ranks share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "weft/layer_parallel/layer.h"
#include "weft/layer_parallel/plan.h"
#include "weft/layer_parallel/states.h"
#include "weft/mpi/communicator.h"

namespace weft::layer_parallel {

// The distinct parameters, and the indices of each layer's parameters among them.
struct ParameterIndex {
  Tensors unique;
  std::map<std::int64_t, std::vector<std::size_t>> of_layer;
  std::map<const void*, std::size_t> places;

  void add(std::int64_t number, const Tensors& parameters);
};

// A parameter that layers of several ranks use. Each rank has a copy; their gradients are summed.
struct SharedParameter {
  at::Tensor mine;  // undefined on ranks without a copy
  StateLayout::Item layout;
};

// Returns the parameters that layers of several ranks use. All ranks pass all layers and get the same result.
[[nodiscard]] std::vector<SharedParameter> find_shared(const Communicator& comm, double tf,
                                                       const std::vector<Layer>& layers);

// Collective. Replaces the gradient of each copy of a shared parameter by the sum over all copies.
// gradients: the gradients of index.unique.
void sum_copies(const std::vector<SharedParameter>& shared, const ParameterIndex& index, Tensors& gradients,
                Communicator& communicator);

}  // namespace weft::layer_parallel
