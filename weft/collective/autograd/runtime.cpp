// Process-wide functions for Python: MPI's lifetime, options, diagnostics and alarms.
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <chrono>
#include <string>
#include <tuple>
#include <vector>

#include "weft/collective/device.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/fingerprint.h"
#include "weft/mpi/options.h"
#include "weft/mpi/waiter.h"

namespace weft::collective {
namespace {

void configure(double timeout, double warn_after, bool debug, bool check, bool cuda_aware, std::int64_t max_count) {
  const auto valid = [](double seconds) { return seconds >= 1e-3 && seconds <= mpi::kLongestWait; };
  TORCH_CHECK_VALUE(valid(timeout) && valid(warn_after),
                    "weft: timeout and warn_after must be greater than 0 s (from 1 ms to ", mpi::kLongestWait,
                    " s), got ", timeout, " and ", warn_after);
  TORCH_CHECK_VALUE(max_count > 0, "weft: max_count must be greater than 0, got ", max_count);
  mpi::Options options = mpi::options();
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1000));
  options.warn_after = std::chrono::milliseconds(static_cast<std::int64_t>(warn_after * 1000));
  options.debug = debug;
  options.check = check;
  options.cuda_aware = cuda_aware;
  options.max_count = max_count;
  mpi::set_options(options);
}

std::tuple<double, double, bool, bool, bool, std::int64_t> configuration() {
  const auto& options = mpi::options();
  return {static_cast<double>(options.timeout.count()) / 1000,
          static_cast<double>(options.warn_after.count()) / 1000,
          options.debug,
          options.check,
          options.cuda_aware,
          options.max_count};
}

// Returns the MPI library, its standard, the thread level, the host and the CUDA support, for weft.doctor().
std::vector<std::string> facts() {
  return {mpi::Environment::library_version(), mpi::Environment::standard_version(), mpi::Environment::thread_level(),
          mpi::Environment::processor_name(), cuda_aware_report()};
}

// Returns when all ranks have called it. Like MPI_Finalize, it waits without a limit: other ranks may compute, evaluate
// or save for any time. Throws PeerLost if a rank terminates, and Disagreement if a rank communicates instead.
void await_exit(std::int64_t comm) {
  const auto communicator = Communicator::find(comm);
  const mpi::OperationScope scope("the exit barrier", communicator.get());
  mpi::Options options = mpi::options();
  options.timeout = std::chrono::hours(24 * 365 * 10);
  mpi::set_options(options);
  const auto await = [&] {
    mpi::require_agreement(*communicator, {.signature = mpi::Fingerprint("exit").value()}, "the end of the program");
  };
  try {
    await();
  } catch (const mpi::PeerLost& error) {
    if (error.terminated()) throw;
    await();  // the rank that failed has continued, and reaches its end later
  }
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("initialize() -> ()", [] { mpi::Environment::ensure(); });
  m.def("finalize() -> ()", [] { mpi::Environment::finalize(); });
  m.def("await_exit(int comm) -> ()", &await_exit);
  m.def("configure(float timeout, float warn_after, bool debug, bool check, bool cuda_aware, int max_count) -> ()",
        &configure);
  m.def("configuration() -> (float, float, bool, bool, bool, int)", &configuration);
  m.def("facts() -> str[]", &facts);
  m.def("alarm(str cause) -> ()",
        [](std::string_view cause) { mpi::raise_alarm_everywhere({.cause = std::string(cause), .terminates = true}); });
}

}  // namespace
}  // namespace weft::collective
