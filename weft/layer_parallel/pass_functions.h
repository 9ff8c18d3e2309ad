// PassFunctions: functions that belong to one pass instead of the network.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "weft/layer_parallel/layer.h"
#include "weft/partition/range.h"

namespace weft::layer_parallel {

// Optional spatial coarsening: maps a state of level `level` to the next coarser level, and back.
struct Transfers {
  using Function = std::function<Tensors(const Tensors&, int level)>;
  Function coarsen;
  Function refine;
};

// A layer threw. The message names the layer; the original exception is nested.
class LayerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user interrupted a layer. It must reach the user instead of being handled as the failure of a layer.
class Interrupted : public LayerError {
 public:
  using LayerError::LayerError;
};

// Keep or restore the buffers that a layer changes.
enum class Buffers : std::int8_t { kKeep, kRestore };

// Only the pass and its autograd graph own these functions, so they may refer to the owner of the network without a
// cycle. Bindings need this, because no garbage collector sees a cycle through C++. Any of them may be empty.
struct PassFunctions {
  // Called first. Returns the input of the network, or an empty state on ranks without input. May call rebind().
  std::function<Tensors()> input;
  // Called before the layers of a micro-batch are evaluated, with its rows in the batch and the rows of the batch.
  std::function<void(partition::Range rows, std::int64_t total)> begin_micro_batch;
  // Replaces Layer::function.
  std::function<Tensors(std::int64_t layer, const Tensors& x, double dt, Buffers buffers)> evaluate;
  // A text that is equal for layers that map states of equal layout to states of equal layout; empty if unknown.
  std::function<std::string(std::int64_t layer)> kind;
  // Replaces Options::transfers and Options::guess.
  Transfers transfers;
  std::function<Tensors(double time)> guess;
  // The state of a layer besides its tensors, as the owner sends it to the ranks that borrow the layer.
  std::function<std::string(std::int64_t layer)> describe;
  // Applies the owner's state to a borrowed layer. May call rebind().
  std::function<void(std::int64_t layer, const std::string& description)> update;
  // Called after each solve.
  std::function<void(bool backward)> solved;
  // Leaves that replace the extra tensors in the layers. If it is empty, the layers use the extra tensors themselves.
  Tensors leaves;
};

}  // namespace weft::layer_parallel
