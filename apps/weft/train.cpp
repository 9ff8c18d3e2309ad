#include "apps/weft/train.h"

#include <c10/util/Exception.h>
#include <mpi.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "apps/command_line.h"
#include "apps/weft/launch.h"
#include "weft/experiment/file/load.h"
#include "weft/experiment/file/problems.h"
#include "weft/experiment/layers/mesh.h"
#include "weft/memory/allocator.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"

namespace weft::command {
namespace {

using experiment::ExperimentError;
using experiment::RunEnd;
using experiment::RunOptions;

constexpr int kInterrupted = 130;

// Starts this program once per rank through mpirun. Errors in the file are reported before any rank starts.
int launch(const RunOptions& options, int ranks, int argc, char** argv) {
  try {
    const auto experiment = experiment::load_experiment(options.file, options.overrides);
    static_cast<void>(experiment::plan_ranks(experiment, ranks));
  } catch (const ExperimentError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kWrongInput;
  }
  std::vector<std::string> command{find_launcher().string(), "-n", std::to_string(ranks)};
  command.emplace_back("/proc/self/exe");
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length > 0) command.back() = std::string(path, static_cast<std::size_t>(length));
  for (int i = 1; i < argc; ++i) command.emplace_back(argv[i]);
  setenv("WEFT_PROGRESS", isatty(STDOUT_FILENO) == 1 ? "bar" : "lines", /*overwrite=*/0);
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) setenv("COLUMNS", std::to_string(size.ws_col).c_str(), 1);
  const int status = run_program(command, SIGUSR1);
  // SIGUSR1 kills the launcher and the ranks until they have installed their handlers.
  if (status == 128 + SIGUSR1 && forwarded_signal()) {
    std::fprintf(stderr, "weft: stopped before training started\n");
    return kInterrupted;
  }
  if (status == 127) std::fprintf(stderr, "weft: cannot start mpirun; install it with `make env` or set WEFT_MPIRUN\n");
  return status;
}

void require_ranks(std::optional<int> requested, int started) {
  if (!requested || *requested == started) return;
  throw ExperimentError("weft: -n " + std::to_string(*requested) + " differs from the " + std::to_string(started) +
                        " ranks that the launcher started; omit -n or pass the same number");
}

[[noreturn]] void abort_all_ranks(const Communicator& world) {
  std::fflush(nullptr);
  // Aborts instead of returning: MPI_Finalize would wait for ranks that wait for this one.
  if (world.size() > 1) MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  std::_Exit(EXIT_FAILURE);
}

// Waits until rank 0 has printed the error that all ranks threw: the launcher kills the other ranks as soon as one
// exits with an error. Gives up after a few seconds, in case a rank has died.
void wait_for_report() {
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (int done = 0; done == 0 && std::chrono::steady_clock::now() < deadline;) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Returns the prefix that an error message of another library lacks.
const char* prefix(const std::string& text) { return text.starts_with("weft: ") ? "" : "weft: "; }

// Trains as one of the ranks of this job.
int train_rank(const RunOptions& options, std::optional<int> ranks, int argc, char** argv) {
  const mpi::Environment environment(&argc, &argv);
  const auto world = Communicator::world();
  try {
    // Every step allocates the same sizes. Without a pool, page faults take up to a third of the CPU time.
    memory::start_pooling();
    experiment::stop_on_signals();
    require_ranks(ranks, world->size());
    return experiment::run_experiment(options, world) == RunEnd::kStopped ? kInterrupted : EXIT_SUCCESS;
  } catch (const mpi::SharedFailure& error) {
    const std::string text = error.what();
    if (world->rank() == 0) std::fprintf(stderr, "%s%s\n", prefix(text), text.c_str());
    std::fflush(nullptr);
    wait_for_report();
    std::_Exit(EXIT_FAILURE);
  } catch (const ExperimentError& error) {
    // All ranks throw the same error.
    if (world->rank() == 0) std::fprintf(stderr, "%s\n", error.what());
    return kWrongInput;
  } catch (const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
    const std::string origin = world->size() > 1 ? "weft: rank " + std::to_string(world->rank()) + ": " : prefix(text);
    std::fprintf(stderr, "%s%s\n", origin.c_str(), text.c_str());
    abort_all_ranks(*world);
  }
}

}  // namespace

int train(const RunOptions& options, std::optional<int> ranks, int argc, char** argv) {
  const bool starts_ranks = ranks.value_or(1) > 1 && !under_launcher();
  return starts_ranks ? launch(options, *ranks, argc, argv) : train_rank(options, ranks, argc, argv);
}

}  // namespace weft::command
