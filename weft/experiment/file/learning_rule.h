// The learning rule of a parameter, and schedules of its learning rate and momentum. No torch.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::experiment {

// Momentum that changes linearly from `initial` in epoch `start` to `saturated` in epoch `saturate`.
struct MomentumSchedule {
  double initial = 0;
  double saturated = 0;
  std::int64_t start = 0;
  std::int64_t saturate = 0;
  // neon's versions without learning rules return `saturated` outside of these epochs, and change from `saturated` to
  // `initial` between them.
  bool reversed = false;
  [[nodiscard]] double at(std::int64_t epoch) const;
};

// A factor of the learning rate that depends on the epoch.
struct RateSchedule {
  enum class Kind : std::uint8_t { kConstant, kStep, kExponential, kCosine };
  Kind kind = Kind::kConstant;
  std::vector<std::int64_t> steps{};  // kStep: epochs at which the factor is multiplied by `gamma`
  double gamma = 1;                   // kStep, kExponential
  double last = 0;                    // kCosine: the factor at the end
  [[nodiscard]] double at(double epoch, std::int64_t epochs) const;
};

struct LearningRule {
  enum class Kind : std::uint8_t { kGradientDescent, kAdam, kAdamW };
  Kind kind = Kind::kGradientDescent;
  double rate = 0.01;
  MomentumSchedule momentum{};
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  RateSchedule schedule{};
};

}  // namespace weft::experiment
