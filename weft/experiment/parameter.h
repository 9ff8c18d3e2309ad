// A weight of the network as this rank holds it, and where that part lies in the whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "weft/experiment/layer_spec.h"
#include "weft/partition/box.h"

namespace weft::experiment {

struct Parameter {
  std::string name{};
  at::Tensor value{};     // this rank's part
  Sizes whole{};          // the whole's shape
  partition::Box part{};  // this rank's part of it; all of it where every rank has a copy
  LearningRule rule{};
  bool only_here = false;  // whole, but no other rank of the group has it
  bool trained = true;     // false: statistics, which no gradient changes
};

// Whether part and whole are the same.
[[nodiscard]] bool is_whole(const Parameter& parameter);

// Whole on every rank.
[[nodiscard]] Parameter whole_parameter(std::string name, at::Tensor value, const LearningRule& rule);
// The box of `whole_value` that this rank keeps.
[[nodiscard]] Parameter cut_parameter(std::string name, const at::Tensor& whole_value, const partition::Box& part,
                                      const LearningRule& rule);
// The cells of `box`.
[[nodiscard]] at::Tensor cut(const at::Tensor& whole, const partition::Box& box);

}  // namespace weft::experiment
