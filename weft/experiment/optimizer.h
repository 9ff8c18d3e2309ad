// Updates of parameters by their gradients, each parameter by its own rule; the state can be kept and brought back.
#pragma once

#include <vector>

#include "weft/experiment/parameter.h"

namespace weft::experiment {

// When an update happens.
struct UpdateTime {
  std::int64_t epoch = 0;   // momentum's schedule counts in whole epochs, as neon's
  double fraction = 0;      // of the epoch that is done
  std::int64_t epochs = 1;  // of the whole training, for schedules that end with it
};

class Optimizer {
 public:
  // The parameters must outlive it.
  explicit Optimizer(std::vector<Parameter*> parameters);

  // By the gradients that are there; parameters without one stay.
  void step(const UpdateTime& time);
  void clear_gradients();

  // Momenta and moments, cut as their parameters are, and how many updates the moments have seen: for checkpoints.
  [[nodiscard]] std::vector<Parameter> state() const;

 private:
  struct Slot {
    Parameter* parameter;
    at::Tensor first;   // momentum's velocity, or the mean of gradients
    at::Tensor second;  // the mean of squared gradients
    at::Tensor count;   // one number: of updates by those means, which begin with the parameter's first gradient
  };

  void descend(Slot& slot, const LearningRule& rule, double rate, double momentum) const;
  void adapt(Slot& slot, const LearningRule& rule, double rate) const;

  std::vector<Slot> slots_;
};

}  // namespace weft::experiment
