// IterationControl: decides how accurate the solves of a training run must be. Pure arithmetic.
//
// The caller compares the gradient of some batches with the exact one and reports the bias: the relative error of the
// gradient. All ranks report the same numbers, so they take the same decisions.
#pragma once

#include <cstdint>
#include <optional>

namespace weft::layer_parallel {

struct ControlOptions {
  // False: only reports. True: changes the setting, and compared batches use the exact gradient.
  bool adapt = true;
  double bound = 0.1;        // largest bias
  std::int64_t every = 10;   // batches from one comparison to the next
  int more_iterations = 4;   // most iterations to add to each solve
  int more_relaxations = 1;  // most relaxations to add to each solve, after the iterations
  double room = 0.3;         // a bias below room * bound allows less accurate solves …
  // … if this many comparisons in a row find it. Each return that fails doubles the number, up to 16 times.
  int comparisons_with_room = 2;
};

// Throws std::invalid_argument for invalid values.
void validate(const ControlOptions& options);

// The accuracy of a pass: additions to the iterations and relaxations of both solves, or an exact pass.
struct ControlSetting {
  int iterations = 0;
  int relaxations = 0;
  bool exact = false;
  friend bool operator==(const ControlSetting&, const ControlSetting&) = default;
};

class IterationControl {
 public:
  explicit IterationControl(const ControlOptions& options);

  [[nodiscard]] const ControlOptions& options() const noexcept { return options_; }
  // The setting of the next batch. If it is exact, comparisons use solves with the other two members.
  [[nodiscard]] ControlSetting setting() const;
  // Whether the next batch must be compared: at the first batch, every `every` batches, after a bias above the bound
  // unless passes are exact, after a return to less accurate solves, and when bias() exceeds the bound. While passes
  // are exact, comparisons only look for a chance to leave this setting, so each one that finds none doubles the
  // interval, up to 16 times `every`.
  [[nodiscard]] bool comparison_due() const;
  // The last measured bias, scaled by the growth of the solves' last change since then. Empty before the first
  // comparison.
  [[nodiscard]] std::optional<double> bias() const;

  // After a batch without comparison. change: the larger Statistics::last_change of its solves, if known.
  void note_batch(std::optional<double> change);
  // After a comparison; selects the setting of the next batch. Returns whether the bias exceeds the bound; NaN does.
  bool note_comparison(double bias, std::optional<double> change);

 private:
  void climb(double bias);
  [[nodiscard]] int highest() const noexcept { return options_.more_iterations + options_.more_relaxations; }

  ControlOptions options_;
  int rung_ = 0;  // additions to both solves: first iterations, then relaxations
  bool exact_ = false;
  bool above_ = false;
  int with_room_ = 0;  // comparisons in a row
  int required_with_room_;
  bool returned_ = false;  // to less accurate solves, which have not been compared yet
  std::int64_t interval_;
  std::int64_t batches_ = 0;  // without comparison, since the last one
  std::optional<double> bias_;
  std::optional<double> bias_before_climb_;
  std::optional<double> compared_change_;
  std::optional<double> change_;
};

}  // namespace weft::layer_parallel
