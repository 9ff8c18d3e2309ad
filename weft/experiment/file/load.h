// Loads and validates an experiment file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weft/experiment/file/description.h"

namespace weft::experiment {

// Reads the file, applies the overrides ("model.num_epochs=3") in order, and performs all checks that need neither data
// nor ranks. Throws ExperimentError that lists every mistake with file, line and column.
[[nodiscard]] Experiment load_experiment(const std::filesystem::path& path,
                                         const std::vector<std::string>& overrides = {});
// The experiment together with its YAML after overrides, which a run saves as config.yaml.
struct ResolvedExperiment {
  Experiment experiment;
  std::string config;
};
[[nodiscard]] ResolvedExperiment resolve_experiment(const std::filesystem::path& path,
                                                    const std::vector<std::string>& overrides = {});

// Parses a text. `name` is the file name in error messages.
[[nodiscard]] Experiment parse_experiment(const std::string& text, const std::string& name,
                                          const std::vector<std::string>& overrides = {});

}  // namespace weft::experiment
