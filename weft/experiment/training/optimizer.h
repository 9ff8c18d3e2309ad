// Updates parameters from their gradients. Each parameter has its own learning rule.
//
// Adam and AdamW follow torch.optim. Momentum follows neon, which differs from torch if the learning rate changes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/experiment/layers/parameter.h"

namespace weft::experiment {

// The position in training, for schedules.
struct UpdateTime {
  std::int64_t epoch = 0;   // momentum schedules count whole epochs, as in neon
  double fraction = 0;      // the finished part of the epoch
  std::int64_t epochs = 1;  // epochs of the whole training, for schedules that end with it
};

// Returns the learning rate at a position in training.
[[nodiscard]] double rate_at(const LearningRule& rule, const UpdateTime& time);

class Optimizer {
 public:
  // The parameters must outlive the optimizer and keep their value tensors.
  explicit Optimizer(const std::vector<Parameter*>& parameters);

  // Updates every parameter that has a gradient.
  void step(const UpdateTime& time);
  void clear_gradients();

  // The state for checkpoints: velocities and moments, partitioned like their parameters, and update counts. The
  // tensors share memory with the optimizer: writing to them restores it.
  [[nodiscard]] std::vector<Parameter> state() const;

 private:
  struct Slot {
    Parameter* parameter;
    at::Tensor first;   // velocity (momentum) or running mean of the gradients
    at::Tensor second;  // running mean of the squared gradients
    at::Tensor count;   // one number: the updates of the means since the parameter's first gradient
  };

  static void step_adaptive(Slot& slot, double rate);
  static void step_descent(Slot& slot, double rate, double momentum);

  std::vector<Slot> slots_;
};

}  // namespace weft::experiment
