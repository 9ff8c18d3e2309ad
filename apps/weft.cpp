// The weft command: train, check, doctor, report, compare.
#include <c10/util/Exception.h>
#include <mpi.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "weft/experiment/check.h"
#include "weft/experiment/launch.h"
#include "weft/experiment/load.h"
#include "weft/experiment/mesh.h"
#include "weft/experiment/problems.h"
#include "weft/experiment/run.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"
#include "weft/text/spelling.h"

namespace {

using weft::kWrongInput;
using weft::experiment::RunEnd;
using weft::experiment::RunOptions;

constexpr int kInterrupted = 130;

// Ranks through the launcher; each is this program again, which then finds itself under it. What is wrong with the file
// is said before any of them starts.
int launch(const RunOptions& options, int ranks, int argc, char** argv) {
  try {
    const auto experiment = weft::experiment::load_experiment(options.file, options.overrides);
    static_cast<void>(weft::experiment::plan_ranks(experiment, ranks));
  } catch (const weft::experiment::ExperimentError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kWrongInput;
  }
  std::vector<std::string> command{weft::experiment::find_launcher().string(), "-n", std::to_string(ranks)};
  command.emplace_back("/proc/self/exe");
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length > 0) command.back() = std::string(path, static_cast<std::size_t>(length));
  for (int i = 1; i < argc; ++i) command.emplace_back(argv[i]);
  setenv("WEFT_PROGRESS", isatty(STDOUT_FILENO) == 1 ? "bar" : "lines", /*overwrite=*/0);
  const int status = weft::experiment::run_program(command, SIGUSR1);
  // Ranks that know of the signal end by themselves; it kills those, and a launcher, that have only begun.
  if (status == 128 + SIGUSR1 && weft::experiment::passed_a_signal_on()) {
    std::fprintf(stderr, "weft: stopped before training began\n");
    return kInterrupted;
  }
  if (status == 127) std::fprintf(stderr, "weft: no launcher mpirun; set WEFT_MPIRUN to one, or run make env\n");
  return status;
}

void require_ranks(const RunOptions& options, std::optional<int> said, int are) {
  if (!said || *said == are) return;
  throw weft::experiment::ExperimentError(options.file.string() + ": expected -n " + std::to_string(are) +
                                          ", as many ranks as the launcher started, or none; got -n " +
                                          std::to_string(*said));
}

// One rank has nobody who waits for it.
[[noreturn]] void end_all_ranks(const weft::mpi::Team& world) {
  std::fflush(nullptr);
  // Not return: MPI would wait at its end for ranks that wait for this one.
  if (world.size() > 1) MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  std::_Exit(EXIT_FAILURE);
}

// In front of an error that does not say itself whose it is.
const char* prefix(const std::string& text) { return text.starts_with("weft: ") ? "" : "weft: "; }

int train(const RunOptions& options, std::optional<int> ranks, int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  const auto world = weft::mpi::Team::world();
  try {
    weft::experiment::stop_on_signals();
    require_ranks(options, ranks, world->size());
    return weft::experiment::run_experiment(options, world) == RunEnd::kStopped ? kInterrupted : EXIT_SUCCESS;
  } catch (const weft::mpi::SharedFailure& error) {
    const std::string text = error.what();
    if (world->rank() == 0) std::fprintf(stderr, "%s%s\n", prefix(text), text.c_str());
    std::fflush(nullptr);
    std::_Exit(EXIT_FAILURE);
  } catch (const weft::experiment::ExperimentError& error) {
    // The same on every rank.
    if (world->rank() == 0) std::fprintf(stderr, "%s\n", error.what());
    return kWrongInput;
  } catch (const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
    const std::string who = world->size() > 1 ? "weft: rank " + std::to_string(world->rank()) + ": " : prefix(text);
    std::fprintf(stderr, "%s%s\n", who.c_str(), text.c_str());
    end_all_ranks(*world);
  }
}

int check(const RunOptions& options, int ranks) {
  try {
    const auto experiment = weft::experiment::load_experiment(options.file, options.overrides);
    std::fputs(weft::experiment::check_report(experiment, ranks).c_str(), stdout);
    return EXIT_SUCCESS;
  } catch (const weft::experiment::ExperimentError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kWrongInput;
  }
}

// A part in Python: `weft sml-demo` is `python -m weft.sml_demo`.
int python(std::string name, const std::vector<std::string>& arguments) {
  std::replace(name.begin(), name.end(), '-', '_');
  std::vector<std::string> command{weft::experiment::find_python().string(), "-m", "weft." + name};
  command.insert(command.end(), arguments.begin(), arguments.end());
  weft::experiment::become(command);
  std::fprintf(stderr, "weft: this command is a part in Python; set WEFT_PYTHON to one with weft in it\n");
  return EXIT_FAILURE;
}

// CLI11 would only say that there is no command.
bool known_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return true;
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return true;
  std::fprintf(stderr, "weft: expected one of %s, got '%s'%s\n", weft::text::listed(names).c_str(), argv[1],
               weft::text::suggestion(argv[1], names).c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains networks in parallel over MPI, from files that describe experiments"};
  app.require_subcommand(1);
  RunOptions options;
  std::optional<int> ranks;

  auto* train_command = app.add_subcommand("train", "run an experiment");
  auto* check_command = app.add_subcommand("check", "validate an experiment, and show how ranks would share it");
  for (auto* command : {train_command, check_command}) {
    command->add_option("file", options.file, "the experiment, in YAML")->required();
    command->add_option("-n", ranks, "how many ranks")->check(CLI::Range(1, 1'000'000));
    command->add_option("--set", options.overrides, "key.key=value: instead of what the file says; may come again")
        ->allow_extra_args(false);
  }
  train_command->add_option("--out", options.out, "the run's folder; without it a new one in runs/");
  train_command->add_flag("--resume", options.resume, "go on from the latest checkpoint");

  const std::vector<std::pair<std::string, std::string>> parts{
      {"doctor", "what this installation is made of, and what of it is a problem"},
      {"report", "a page of a run: curves, tables, pictures"},
      {"compare", "two runs side by side"},
      {"tensorboard", "a run's metrics for TensorBoard"},
      {"sml-demo", "training with sums made by a switch in software"}};
  for (const auto& [name, what] : parts) app.add_subcommand(name, what)->prefix_command()->set_help_flag();

  if (!known_command(app, argc, argv)) return kWrongInput;
  if (const auto status = weft::parse(app, argc, argv)) return *status;
  if (*train_command) {
    const bool starts_ranks = ranks.value_or(1) > 1 && !weft::experiment::under_launcher();
    return starts_ranks ? launch(options, *ranks, argc, argv) : train(options, ranks, argc, argv);
  }
  if (*check_command) return check(options, ranks.value_or(1));
  for (const auto& [name, what] : parts) {
    if (app.got_subcommand(name)) return python(name, app.get_subcommand(name)->remaining());
  }
  return EXIT_FAILURE;
}
