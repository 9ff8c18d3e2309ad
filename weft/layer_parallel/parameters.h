// The parameters of a rank's layers: each once for its optimiser, and summed where layers of several ranks share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "weft/layer_parallel/layer.h"
#include "weft/layer_parallel/plan.h"
#include "weft/layer_parallel/states.h"
#include "weft/mpi/team.h"

namespace weft::layer_parallel {

// Each parameter once, and which of them a layer has.
struct ParameterIndex {
  Tensors unique;
  std::map<std::int64_t, std::vector<std::size_t>> of_layer;
  std::map<const void*, std::size_t> places;

  void add(std::int64_t number, const Tensors& parameters);
};

// A parameter that layers of several ranks use: each has a copy, and their gradients are summed.
struct SharedParameter {
  at::Tensor mine;  // undefined on ranks that have no copy
  Layout::Item layout;
};

// Which parameters layers of several ranks use. All ranks see the whole list of layers, and so agree.
[[nodiscard]] std::vector<SharedParameter> find_shared(const mpi::Team& comm, double tf,
                                                       const std::vector<Layer>& layers);

// Collective. Copies of one parameter on several ranks are one parameter: each copy's gradient becomes their sum.
// `gradients` are those of index.unique.
void sum_copies(const std::vector<SharedParameter>& shared, const ParameterIndex& index, Tensors& gradients,
                mpi::Team& team);

}  // namespace weft::layer_parallel
