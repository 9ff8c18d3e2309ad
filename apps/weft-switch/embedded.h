// Workers that the switch starts itself, to try it on one machine with one command.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "weft/aggregation/address.h"

namespace weft::apps {

struct Workers {
  int count = 1;
  std::vector<std::string> command;
  aggregation::Address control;
  std::string keys;
};

// Runs the command once per worker with what torch.distributed and `sml` need in the environment (RANK, WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT, WEFT_SML_*), and waits. When one fails, or one of `signals` comes, the others are ended.
// The exit status of the first that failed, else 0.
[[nodiscard]] int run_workers(const Workers& workers, const sigset_t& signals);

}  // namespace weft::apps
