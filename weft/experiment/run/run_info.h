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

// Collects the environment. `data` is the folder of the data files; `overrides` are the --set options.
[[nodiscard]] RunInfo run_info(const Experiment& experiment, const RankPlan& plan, std::int64_t ranks,
                               const std::filesystem::path& data, const std::vector<std::string>& overrides);

// Writes run.json. A resumed run replaces it, since the number of ranks may change.
void write_run_info(const std::filesystem::path& run, const RunInfo& info);

}  // namespace weft::experiment
