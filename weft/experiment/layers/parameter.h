// A weight of an experiment's network together with its learning rule.
#pragma once

#include "weft/experiment/file/learning_rule.h"
#include "weft/spatial/nn/parameter.h"

namespace weft::experiment {

using spatial::nn::cut;
using spatial::nn::is_whole;

struct Parameter : spatial::nn::Parameter {
  LearningRule rule{};
};

// A parameter that every rank holds whole.
[[nodiscard]] inline Parameter whole_parameter(std::string name, at::Tensor value, const LearningRule& rule) {
  return {spatial::nn::whole_parameter(std::move(name), std::move(value)), rule};
}

}  // namespace weft::experiment
