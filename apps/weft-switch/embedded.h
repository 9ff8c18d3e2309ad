// Workers that the switch starts itself, for trying it on one machine with one command.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "weft/aggregation/packet/address.h"

namespace weft::apps {

struct Workers {
  int count = 1;
  std::vector<std::string> command;
  aggregation::Address control;
  std::string keys;
};

// Runs the command once per worker with the environment of torch.distributed and `sml` (RANK, WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT, WEFT_SML_*) and waits. If a worker fails or one of `signals` arrives, it terminates the others with
// SIGTERM, and with SIGKILL after 5 s or a second signal. Returns the exit status of the first failed worker, or 0.
[[nodiscard]] int run_workers(const Workers& workers, const sigset_t& signals);

}  // namespace weft::apps
