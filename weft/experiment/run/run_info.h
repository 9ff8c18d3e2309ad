// The environment of a run (run.json): ranks, dtype, data and versions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace weft::experiment {

struct Experiment;
struct RankPlan;

// Names and values, in display order.
using RunInfo = std::vector<std::pair<std::string, std::string>>;

struct RunFacts {
  std::int64_t ranks = 1;
  int threads = 1;  // of each rank
  std::int64_t train_images = 0;
  std::int64_t test_images = 0;
  std::int64_t parameters = 0;
  std::filesystem::path data{};          // folder of the data files; empty for synthetic images
  std::vector<std::string> overrides{};  // --set options
};

// Collects the environment.
[[nodiscard]] RunInfo run_info(const Experiment& experiment, const RankPlan& plan, const RunFacts& facts);

// Returns the lines that a run prints before it trains.
[[nodiscard]] std::vector<std::string> banner(const Experiment& experiment, const RankPlan& plan,
                                              const RunFacts& facts);

// Writes run.json. A resumed run replaces it, since the number of ranks may change.
void write_run_info(const std::filesystem::path& run, const RunInfo& info);

}  // namespace weft::experiment
