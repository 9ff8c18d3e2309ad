// Runs an experiment: loads data, trains, writes checkpoints and results to the run folder.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/mpi/communicator.h"

namespace weft::experiment {

struct RunOptions {
  std::filesystem::path file{};
  std::vector<std::string> overrides{};
  std::filesystem::path out{};   // empty: a new folder in runs/
  bool resume = false;           // continue from the latest checkpoint in `out`
  std::optional<int> threads{};  // per rank; see set_threads()
};

enum class RunEnd : std::uint8_t { kFinished, kStopped };

// Runs the experiment to its end, or until a stop request. Rank 0 prints. Collective over `world`.
// Throws ExperimentError on every rank for mistakes in the file. Failures before and between steps (data, checkpoints,
// the run folder) also throw on every rank, as mpi::SharedFailure if the job has several ranks. Failures inside of a
// step, or when rank 0 writes metrics, throw only on the rank that fails.
RunEnd run_experiment(const RunOptions& options, const std::shared_ptr<Communicator>& world);

// Installs handlers: SIGINT, SIGTERM and SIGUSR1 (which launchers forward) request a stop after the current step. A
// further SIGINT restores the default action, so that the next one ends the process.
void stop_on_signals();
[[nodiscard]] bool stop_requested() noexcept;

}  // namespace weft::experiment
