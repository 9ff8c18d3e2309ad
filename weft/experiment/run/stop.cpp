#include <csignal>

#include "weft/experiment/run/run.h"

namespace weft::experiment {
namespace {

volatile std::sig_atomic_t requested = 0;

extern "C" void request_stop(int signal) {
  if (requested != 0 && signal == SIGINT) std::signal(SIGINT, SIG_DFL);
  requested = 1;
}

}  // namespace

void stop_on_signals() {
  struct sigaction action{};
  action.sa_handler = &request_stop;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // do not interrupt waits for other ranks
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
}

bool stop_requested() noexcept { return requested != 0; }

}  // namespace weft::experiment
