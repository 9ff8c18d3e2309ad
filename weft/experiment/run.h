// One run of an experiment: data, network, training, checkpoints and the folder with what came of it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "weft/mpi/team.h"

namespace weft::experiment {

struct RunOptions {
  std::filesystem::path file{};
  std::vector<std::string> overrides{};
  std::filesystem::path out{};  // empty: a new folder in runs/
  bool resume = false;          // go on from the latest checkpoint in `out`
};

enum class RunEnd : std::uint8_t { kFinished, kStopped };

// Collective over `world`. Rank 0 prints. Throws ExperimentError on every rank for what is wrong in the file. What
// fails before or between steps (data, checkpoints, the run's folder) is thrown on every rank too, as
// mpi::SharedFailure where there are several; what fails inside of a step, or when the first rank writes its metrics,
// only where it happens.
RunEnd run_experiment(const RunOptions& options, const std::shared_ptr<mpi::Team>& world);

// From now on SIGINT, SIGTERM and SIGUSR1 (which launchers pass on) ask for a stop after the step that is under way; a
// second SIGINT ends the process.
void stop_on_signals();
[[nodiscard]] bool stop_requested() noexcept;

}  // namespace weft::experiment
