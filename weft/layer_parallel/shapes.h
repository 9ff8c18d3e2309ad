// Layouts of the states at each point of a network, determined before the solve.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/layer_parallel/evaluator.h"
#include "weft/layer_parallel/plan.h"
#include "weft/layer_parallel/states.h"
#include "weft/mpi/communicator.h"

namespace weft::layer_parallel {

struct Shapes {
  StateLayout input;
  // Layouts at points 0, 1, ..., layers; empty if all are equal to `input`.
  std::vector<StateLayout> points;

  [[nodiscard]] bool alike() const noexcept { return points.empty(); }
  [[nodiscard]] const StateLayout& at(std::int64_t point) const {
    return alike() ? input : points[static_cast<std::size_t>(point)];
  }
  [[nodiscard]] const StateLayout& output() const { return alike() ? input : points.back(); }
};

// Collective. Evaluates one layer of each kind on sample values: concurrently if all layers preserve the layout,
// otherwise rank after rank. Throws on all ranks if a layer fails, or if a coarse step returns another layout than the
// layers that it replaces.
[[nodiscard]] Shapes learn_shapes(const StateLayout& input, const Plan& plan, LayerEvaluator& evaluator,
                                  at::Device device, Communicator& communicator);

}  // namespace weft::layer_parallel
