#include "weft/experiment/training/progress.h"

#include "weft/experiment/training/checkpoint_error.h"

namespace weft::experiment {
namespace {

double number(const std::map<std::string, double>& numbers, const char* name) {
  const auto found = numbers.find(name);
  if (found == numbers.end())
    throw CheckpointError("weft: the checkpoint has no number '" + std::string(name) +
                          "'; it is damaged or from another program");
  return found->second;
}

std::int64_t whole(const std::map<std::string, double>& numbers, const char* name) {
  constexpr double kExact = 9007199254740992;  // 2^53
  const double value = number(numbers, name);
  if (!(value >= 0 && value <= kExact))
    throw CheckpointError("weft: the checkpoint is damaged: '" + std::string(name) + "' is " + std::to_string(value) +
                          ", expected a number from 0 to 2^53");
  return static_cast<std::int64_t>(value);
}

}  // namespace

std::map<std::string, double> numbers_of(const Progress& progress) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  return {{"stage", number(progress.stage)},  {"epoch", number(progress.epoch)},
          {"batch", number(progress.batch)},  {"step", number(progress.step)},
          {"cost_sum", progress.cost_sum},    {"mistakes", number(progress.mistakes)},
          {"images", number(progress.images)}};
}

Progress progress_from(const std::map<std::string, double>& numbers) {
  return {.stage = whole(numbers, "stage"),
          .epoch = whole(numbers, "epoch"),
          .batch = whole(numbers, "batch"),
          .step = whole(numbers, "step"),
          .cost_sum = number(numbers, "cost_sum"),
          .mistakes = whole(numbers, "mistakes"),
          .images = whole(numbers, "images")};
}

}  // namespace weft::experiment
