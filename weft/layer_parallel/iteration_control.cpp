#include "weft/layer_parallel/iteration_control.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace weft::layer_parallel {
namespace {

constexpr std::int64_t kLongestInterval = 16;  // in units of ControlOptions::every
constexpr int kMostWithRoom = 16;              // in units of ControlOptions::comparisons_with_room

void require(bool holds, const char* name, const char* expected, double value) {
  if (holds) return;
  throw std::invalid_argument(std::string("weft: expected ") + name + " to be " + expected + ", got " +
                              std::to_string(value));
}

}  // namespace

void validate(const ControlOptions& options) {
  require(options.bound > 0, "bound", "above 0", options.bound);
  require(options.every >= 1, "every", "at least 1", static_cast<double>(options.every));
  require(options.more_iterations >= 0, "more_iterations", "at least 0", options.more_iterations);
  require(options.more_relaxations >= 0, "more_relaxations", "at least 0", options.more_relaxations);
  require(options.room > 0 && options.room < 1, "room", "between 0 and 1", options.room);
  require(options.comparisons_with_room >= 1, "comparisons_with_room", "at least 1", options.comparisons_with_room);
}

IterationControl::IterationControl(const ControlOptions& options)
    : options_(options), required_with_room_(options.comparisons_with_room), interval_(options.every) {
  validate(options);
}

ControlSetting IterationControl::setting() const {
  return {std::min(rung_, options_.more_iterations), std::max(rung_ - options_.more_iterations, 0), exact_};
}

std::optional<double> IterationControl::bias() const {
  if (!bias_ || !change_ || !compared_change_ || !(*compared_change_ > 0)) return bias_;
  return *bias_ * *change_ / *compared_change_;
}

bool IterationControl::comparison_due() const {
  const std::optional<double> expected = bias();
  if (!expected || returned_ || batches_ + 1 >= interval_) return true;
  if (exact_) return false;
  if (!options_.adapt && above_) return false;  // it was reported, and nothing has changed since
  return !(*expected <= options_.bound);
}

void IterationControl::note_batch(std::optional<double> change) {
  ++batches_;
  if (!exact_ && change) change_ = change;
}

// Adds an iteration, or switches to exact passes if the bias falls too slowly for the additions that are left.
void IterationControl::climb(double bias) {
  const int left = highest() - rung_;
  const double factor = bias_before_climb_ ? bias / *bias_before_climb_ : 0;
  bias_before_climb_ = bias;
  if (left > 0 && bias * std::pow(factor, left) <= options_.bound) {
    ++rung_;
  } else {
    exact_ = true;
    rung_ = highest();
    bias_before_climb_.reset();
  }
}

bool IterationControl::note_comparison(double bias, std::optional<double> change) {
  batches_ = 0;
  bias_ = bias;
  change_ = compared_change_ = change;
  above_ = !(bias <= options_.bound);
  if (!options_.adapt) return above_;
  interval_ = exact_ && above_ ? std::min(2 * interval_, kLongestInterval * options_.every) : options_.every;
  if (returned_ && above_) {
    required_with_room_ = std::min(2 * required_with_room_, kMostWithRoom * options_.comparisons_with_room);
  }
  returned_ = false;
  with_room_ = bias <= options_.room * options_.bound ? with_room_ + 1 : 0;
  if (above_ && !exact_) {
    climb(bias);
  } else if (!above_) {
    bias_before_climb_.reset();
  }
  if (with_room_ >= required_with_room_ && (exact_ || rung_ > 0)) {
    if (exact_) {
      exact_ = false;
    } else {
      --rung_;
    }
    with_room_ = 0;
    returned_ = true;
  }
  return above_;
}

}  // namespace weft::layer_parallel
