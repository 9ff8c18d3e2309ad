// From a file to a validated description of an experiment.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weft/experiment/description.h"

namespace weft::experiment {

// Reads the file, applies the overrides ("model.num_epochs=3") in order, and checks everything that can be checked
// before data and ranks are there. Throws ExperimentError with every mistake, each with file, line and column.
[[nodiscard]] Experiment load_experiment(const std::filesystem::path& path,
                                         const std::vector<std::string>& overrides = {});
// With the file as it counts, overrides applied: what a run keeps as config.yaml.
struct ResolvedExperiment {
  Experiment experiment;
  std::string config;
};
[[nodiscard]] ResolvedExperiment resolve_experiment(const std::filesystem::path& path,
                                                    const std::vector<std::string>& overrides = {});

// The same of a text; `name` stands in errors.
[[nodiscard]] Experiment parse_experiment(const std::string& text, const std::string& name,
                                          const std::vector<std::string>& overrides = {});

}  // namespace weft::experiment
