#include "apps/weft-switch/embedded.h"

#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <system_error>

#include "weft/control/socket.h"

namespace weft::apps {
namespace {

constexpr int kNotStarted = 127;
constexpr int kSignalled = 128;

// Returns a port that is free now. torch's store binds it shortly afterwards.
std::uint16_t free_port() {
  const files::FileDescriptor probe = control::listen_on({0x7F000001, 0});
  return control::local_address(probe.get()).port;
}

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

[[noreturn]] void become_worker(const Workers& workers, int rank, const sigset_t& signals) {
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  std::signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  std::vector<char*> arguments;
  for (const std::string& word : workers.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  spdlog::error("cannot start {}: {}", workers.command[0], std::strerror(errno));
  _exit(kNotStarted);
}

void set_environment(const Workers& workers) {
  set("WORLD_SIZE", std::to_string(workers.count));
  set("LOCAL_WORLD_SIZE", std::to_string(workers.count));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(free_port()));
  set("WEFT_SML_CONTROLLER_IP", "127.0.0.1");
  set("WEFT_SML_CONTROLLER_PORT", std::to_string(workers.control.port));
  if (!workers.keys.empty()) set("WEFT_SML_KEYS", workers.keys);
  // Selects gloo even if srun started the switch: srun's environment variables do not apply to these workers.
  setenv("WEFT_SML_FALLBACK", "gloo", 0);
  setenv("OMP_NUM_THREADS", "1", 0);  // several workers with one thread per core each would be slower
}

std::map<pid_t, int> start(const Workers& workers, const sigset_t& signals) {
  set_environment(workers);
  std::map<pid_t, int> ranks;
  for (int rank = 0; rank < workers.count; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) throw std::system_error(errno, std::generic_category(), "weft: fork");
    if (pid == 0) become_worker(workers, rank, signals);
    ranks.emplace(pid, rank);
  }
  return ranks;
}

// Ends the workers with SIGTERM, and with SIGKILL if they do not exit in time.
class Termination {
 public:
  explicit Termination(const std::map<pid_t, int>& ranks) : ranks_(ranks) {}

  void begin() {
    if (begun_) return;
    begun_ = true;
    deadline_ = Clock::now() + kGrace;
    send(SIGTERM);
  }
  // Call it regularly.
  void check() {
    if (Clock::now() < deadline_) return;
    spdlog::warn("{} worker(s) ignored SIGTERM; sending SIGKILL", ranks_.size());
    force();
  }
  void force() {
    send(SIGKILL);
    deadline_ = Clock::time_point::max();
  }
  [[nodiscard]] bool begun() const { return begun_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kGrace = std::chrono::seconds(5);

  void send(int signal) {
    for (const auto& [pid, rank] : ranks_) kill(pid, signal);
  }

  const std::map<pid_t, int>& ranks_;
  bool begun_ = false;
  Clock::time_point deadline_ = Clock::time_point::max();  // for SIGKILL
};

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : kSignalled + WTERMSIG(wait_status);
}

}  // namespace

int run_workers(const Workers& workers, const sigset_t& signals) {
  std::map<pid_t, int> ranks = start(workers, signals);
  const timespec moment{0, 100'000'000};
  int first_failure = 0;
  Termination termination(ranks);
  while (!ranks.empty()) {
    if (const int signal = sigtimedwait(&signals, nullptr, &moment); signal > 0) {
      if (first_failure == 0) first_failure = kSignalled + signal;
      termination.begun() ? termination.force() : termination.begin();
    }
    termination.check();
    int wait_status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
      const int status = status_of(wait_status);
      if (status != 0 && first_failure == 0) {
        spdlog::error("worker {} exited with status {}; terminating the others", ranks[pid], status);
        first_failure = status;
        ranks.erase(pid);
        termination.begin();
      }
      ranks.erase(pid);
    }
  }
  return first_failure;
}

}  // namespace weft::apps
