// What a run was computed with, beside its config.yaml: ranks, types, data and versions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace weft::experiment {

struct Experiment;
struct RankPlan;

// By name, in the order in which they are shown.
using Facts = std::vector<std::pair<std::string, std::string>>;

// `data` is the folder of the data set's files, `overrides` what the command set.
[[nodiscard]] Facts facts_of(const Experiment& experiment, const RankPlan& plan, std::int64_t ranks,
                             const std::filesystem::path& data, const std::vector<std::string>& overrides);

// run.json. A run that goes on writes it anew: the number of ranks may have changed.
void write_facts(const std::filesystem::path& run, const Facts& facts);

}  // namespace weft::experiment
