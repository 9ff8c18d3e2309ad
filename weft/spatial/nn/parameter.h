// A weight of a layer as this rank holds it, and the position of that part in the whole tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "weft/partition/box.h"

namespace weft::spatial::nn {

struct Parameter {
  std::string name{};
  at::Tensor value{};                 // this rank's part; optimizers update it in place
  std::vector<std::int64_t> whole{};  // shape of the whole tensor
  partition::Box part{};              // this rank's part of it; the whole box if every rank has a copy
  bool only_here = false;             // this rank holds it whole, and no other rank of the group has it
  bool trained = true;                // false for statistics, which have no gradient
};

// Returns true if this rank holds the whole tensor.
[[nodiscard]] bool is_whole(const Parameter& parameter);

// A parameter that every rank holds whole. `value` becomes a leaf that requires a gradient.
[[nodiscard]] Parameter whole_parameter(std::string name, at::Tensor value);
// A parameter of which this rank keeps the box `part` of `whole_value`.
[[nodiscard]] Parameter cut_parameter(std::string name, const at::Tensor& whole_value, const partition::Box& part);
// Returns a view of the cells of `box`.
[[nodiscard]] at::Tensor cut(const at::Tensor& whole, const partition::Box& box);

}  // namespace weft::spatial::nn
