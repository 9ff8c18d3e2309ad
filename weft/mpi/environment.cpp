#include "weft/mpi/environment.h"

#include <mpi.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "weft/mpi/error.h"
#include "weft/mpi/options.h"

namespace weft::mpi {
namespace {

int provided_level() noexcept {
  int level = MPI_THREAD_SINGLE;
  if (Environment::alive()) MPI_Query_thread(&level);
  return level;
}

std::mutex& implicit_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::unique_ptr<Environment>& implicit_environment() {
  // finalize() destroys the Environment, because the order of static destruction is undefined.
  static auto* environment = new std::unique_ptr<Environment>();
  return *environment;
}

std::atomic<bool> g_forked{false};
// Registered when the library is loaded: the program may initialise MPI itself.
[[maybe_unused]] const int g_fork_handler = pthread_atfork(nullptr, nullptr, [] {
  if (Environment::initialized()) g_forked = true;
});

void require_own_process() {
  if (!Environment::forked()) return;
  throw MpiError("weft.MpiError: this process is a child of fork() and cannot use the MPI of its parent");
}

// Leaked for the same reason.
std::vector<std::function<void()>>& stoppers() {
  static auto* all = new std::vector<std::function<void()>>();
  return *all;
}

}  // namespace

void Environment::before_finalize(std::function<void()> stop) { stoppers().push_back(std::move(stop)); }

Environment::Environment(int* argc, char*** argv) {
  if (finalized()) throw MpiError("weft.MpiError: MPI is already finalised and cannot be initialised again");
  require_own_process();
  static_cast<void>(options());  // reads the environment now, because an invalid value throws
  if (initialized()) return;
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  owner_ = true;
}

Environment::~Environment() {
  if (!owner_ || !alive()) return;
  for (const auto& stop : stoppers()) stop();
  MPI_Finalize();
}

void Environment::ensure() {
  if (alive()) return;  // the common case needs no lock
  require_own_process();
  const std::lock_guard lock(implicit_mutex());
  auto& environment = implicit_environment();
  if (environment == nullptr) {
    environment = std::make_unique<Environment>();
    std::atexit([] { Environment::finalize(); });
  }
}

void Environment::finalize() {
  if (forked()) return;  // another thread may have held the lock during the fork
  const std::lock_guard lock(implicit_mutex());
  implicit_environment().reset();
}

bool Environment::initialized() noexcept {
  // Caches the result, because MPI_Initialized is a call into the library. Once true, it stays true.
  static std::atomic<bool> seen{false};
  if (seen.load(std::memory_order_relaxed)) return true;
  int flag = 0;
  MPI_Initialized(&flag);
  if (flag != 0) seen.store(true, std::memory_order_relaxed);
  return flag != 0;
}

bool Environment::finalized() noexcept {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

bool Environment::forked() noexcept { return g_forked.load(std::memory_order_relaxed); }

bool Environment::thread_multiple() noexcept { return provided_level() == MPI_THREAD_MULTIPLE; }

std::string Environment::thread_level() {
  const int level = provided_level();
  if (level == MPI_THREAD_MULTIPLE) return "MPI_THREAD_MULTIPLE";
  if (level == MPI_THREAD_SERIALIZED) return "MPI_THREAD_SERIALIZED";
  if (level == MPI_THREAD_FUNNELED) return "MPI_THREAD_FUNNELED";
  return "MPI_THREAD_SINGLE";
}

void Environment::require_thread_multiple(const char* who) {
  if (thread_multiple()) return;
  throw MpiError(std::string("weft.MpiError: ") + who + " needs MPI_THREAD_MULTIPLE, but MPI provides " +
                 thread_level() +
                 "; initialise MPI with MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...) or let weft initialise it");
}

std::string Environment::library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  return {text};
}

std::string Environment::standard_version() {
  int major = 0;
  int minor = 0;
  MPI_Get_version(&major, &minor);
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string Environment::processor_name() {
  char text[MPI_MAX_PROCESSOR_NAME] = "";
  int length = 0;
  MPI_Get_processor_name(text, &length);
  return {text};
}

}  // namespace weft::mpi
