// The parameters of a rank's layers, each once, and the gradient sum of parameters that several ranks share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
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

// The sums of the gradients of a rank's parameters and of the extra tensors over its layers.
struct GradientSums {
  GradientSums(const ParameterIndex& parameter_index, std::size_t extra_tensors)
      : index(parameter_index), parameters(parameter_index.unique.size()), extras(extra_tensors) {}
  // gradients: those of the layer's parameters, then those of the extra tensors; some may be undefined.
  void add(std::int64_t layer, const Tensors& gradients);

  const ParameterIndex& index;
  Tensors parameters;  // in the order of index.unique
  Tensors extras;
};

// This rank's copies of parameters that layers of several ranks use, by a name that is equal on all ranks.
using SharedCopies = std::map<std::string, at::Tensor>;

// Returns the parameters of this rank that layers of other ranks use, too. Every rank passes all layers.
[[nodiscard]] SharedCopies find_shared(const Communicator& comm, double tf, const std::vector<Layer>& layers);

// The parameters that several ranks share. Each of these ranks has a copy; their gradients are summed.
class SharedParameters {
 public:
  // Replaces this rank's copies.
  void set(SharedCopies copies);
  // Whether this rank's copies have changed since the last learn(): other tensors, shapes or types.
  [[nodiscard]] bool changed() const;
  // Collective. Makes names, shapes and types known to all ranks. Throws on all ranks if those of two copies differ.
  void learn(Communicator& communicator);
  // Collective. Replaces the gradient of each copy by the sum over all copies. gradients: of index.unique.
  void sum(const ParameterIndex& index, Tensors& gradients, Communicator& communicator) const;

 private:
  SharedCopies copies_;
  std::map<std::string, StateLayout::Item> layouts_;  // layouts of all ranks
  bool replaced_ = false;
};

}  // namespace weft::layer_parallel
