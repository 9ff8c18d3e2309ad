// What states look like at each point of a network, found out before anything is solved.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/layer_parallel/evaluator.h"
#include "weft/layer_parallel/plan.h"
#include "weft/layer_parallel/states.h"
#include "weft/mpi/team.h"

namespace weft::layer_parallel {

struct Shapes {
  Layout input;
  // At points 0, 1, ..., layers; empty where all look like the input.
  std::vector<Layout> points;

  [[nodiscard]] bool alike() const noexcept { return points.empty(); }
  [[nodiscard]] const Layout& at(std::int64_t point) const {
    return alike() ? input : points[static_cast<std::size_t>(point)];
  }
  [[nodiscard]] const Layout& output() const { return alike() ? input : points.back(); }
};

// Collective. Evaluates every layer on zeros: all ranks at the same time if layers keep what they are given, otherwise
// one after the other. Throws on all ranks where a layer fails, and where a coarse step would lead to another shape
// than the layers that it replaces.
[[nodiscard]] Shapes learn_shapes(const Layout& input, const Plan& plan, Evaluator& evaluator, at::Device device,
                                  mpi::Team& team);

}  // namespace weft::layer_parallel
