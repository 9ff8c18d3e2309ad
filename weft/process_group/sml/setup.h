// Collective set-up of a group at a switch: either all ranks succeed, or all throw the same error.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>

#include "weft/aggregation/config/config.h"
#include "weft/process_group/sml/aggregation_queue.h"

namespace weft::process_group {

struct Membership {
  c10::intrusive_ptr<c10d::Store>
      store;  // prefixed with the group's name; earlier groups may have used the same prefix
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{300'000};
};

// Collective: loads the configuration and checks that all ranks agree on the shared settings. Throws DistBackendError.
[[nodiscard]] aggregation::Config agreed_config(const Membership& members);
// Collective, before agreed_config(): the fallback backend, "mpi" or "gloo"; `usual` unless the configuration sets it.
[[nodiscard]] std::string agreed_fallback(const Membership& members, const std::string& usual);
// Collective: joins a session at the switch and starts the queue.
[[nodiscard]] std::shared_ptr<AggregationQueue> open_queue(const Membership& members,
                                                           const aggregation::Config& config);

}  // namespace weft::process_group
