#include "apps/weft/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <system_error>

#include "apps/weft/banner_filter.h"

namespace weft::command {
namespace {

namespace fs = std::filesystem;

// Searches the parent folders of `start` for one of the relative paths.
std::optional<fs::path> find_above(const fs::path& start, const std::vector<std::string>& places) {
  std::error_code ignored;
  for (fs::path folder = start.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    for (const std::string& place : places) {
      const fs::path program = folder / place;
      if (fs::is_regular_file(program, ignored) && access(program.c_str(), X_OK) == 0) return program;
    }
  }
  return std::nullopt;
}

// Returns the variable's value, a program near this one, or `name` for a PATH lookup.
fs::path find(const char* variable, const std::vector<std::string>& places, const char* name) {
  const char* given = std::getenv(variable);
  if (given != nullptr && *given != '\0') return given;
  std::error_code ignored;
  const auto found = find_above(fs::read_symlink("/proc/self/exe", ignored), places);
  return found.value_or(name);
}

std::vector<char*> arguments_of(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  return arguments;
}

volatile std::sig_atomic_t child = 0;
volatile std::sig_atomic_t forwarded = 0;
volatile std::sig_atomic_t forward_signal = SIGTERM;

extern "C" void forward_to_child(int /*signal*/) {
  forwarded = forwarded + 1;
  if (child > 0) kill(static_cast<pid_t>(child), forwarded > 2 ? SIGKILL : static_cast<int>(forward_signal));
}

void write_stderr(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

// Copies what is in the pipe to stderr. Returns false at the end of the stream.
bool copy_some(int pipe, BannerFilter& filter) {
  std::array<char, 4096> buffer{};
  const ssize_t count = read(pipe, buffer.data(), buffer.size());
  if (count > 0) write_stderr(filter.add({buffer.data(), static_cast<std::size_t>(count)}));
  return count > 0 || (count < 0 && errno == EINTR);
}

// Copies the program's stderr until it ends. Does not wait for processes that it left behind with the same stderr.
int wait_for(pid_t process, int pipe) {
  BannerFilter filter;
  int status = 0;
  bool open = true;
  for (bool ended = false; !ended;) {
    pollfd ready{pipe, POLLIN, 0};
    constexpr int kMilliseconds = 100;
    const bool some = open && poll(&ready, 1, kMilliseconds) > 0;
    if (some) open = copy_some(pipe, filter);
    if (some && open) continue;
    const pid_t waited = waitpid(process, &status, open ? WNOHANG : 0);
    if (waited < 0 && errno != EINTR) return EXIT_FAILURE;
    ended = waited == process;
  }
  pollfd rest{pipe, POLLIN, 0};
  while (open && poll(&rest, 1, 0) > 0) open = copy_some(pipe, filter);
  write_stderr(filter.finish());
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

bool forwarded_signal() noexcept { return forwarded > 0; }

fs::path find_launcher() { return find("WEFT_MPIRUN", {"mpirun", "scripts/mpirun", ".venv/bin/mpirun"}, "mpirun"); }

fs::path find_python() { return find("WEFT_PYTHON", {"python", ".venv/bin/python"}, "python3"); }

bool under_launcher() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE", "PMI_RANK"}) {
    if (std::getenv(variable) != nullptr) return true;
  }
  return false;
}

void exec_program(const std::vector<std::string>& command) {
  std::fflush(nullptr);
  execvp(command.front().c_str(), arguments_of(command).data());
  std::perror(("weft: " + command.front()).c_str());
}

int run_program(const std::vector<std::string>& command, int forward_as) {
  forward_signal = forward_as;
  struct sigaction action{};
  action.sa_handler = &forward_to_child;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  std::array<int, 2> pipe{};
  if (pipe2(pipe.data(), O_CLOEXEC) != 0) {
    std::perror("weft: pipe");
    return EXIT_FAILURE;
  }
  const pid_t parent = getpid();  // 1 if a container starts the command
  const pid_t process = fork();
  if (process < 0) {
    std::perror("weft: fork");
    return EXIT_FAILURE;
  }
  if (process == 0) {
    dup2(pipe[1], STDERR_FILENO);
    // Uses a separate process group: Ctrl-C would otherwise reach the launcher, which kills its ranks at once.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);                   // the ranks must not outlive this command
    if (getppid() != parent) std::_Exit(EXIT_FAILURE);  // the parent exited before prctl()
    exec_program(command);
    std::_Exit(127);
  }
  child = process;
  close(pipe[1]);
  if (forwarded > 0) kill(process, forward_as);  // the signal arrived before fork returned
  const int status = wait_for(process, pipe[0]);
  close(pipe[0]);
  return status;
}

}  // namespace weft::command
