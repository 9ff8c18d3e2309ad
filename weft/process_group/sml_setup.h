// How the ranks of a group come to a switch together: all of them, or none and with one error.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>

#include "weft/aggregation/config.h"
#include "weft/process_group/sml_lane.h"

namespace weft::process_group {

struct Membership {
  c10::intrusive_ptr<c10d::Store> store;  // with a prefix of this group, or of this one and earlier ones
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{300'000};
};

// Collective. The same configuration on all ranks, in what it decides for all of them.
[[nodiscard]] aggregation::Config agreed_config(const Membership& members);
// Collective, before agreed_config: which backend stands behind the switch, "mpi" or "gloo"; `usual` where the
// configuration does not say.
[[nodiscard]] std::string agreed_fallback(const Membership& members, const std::string& usual);
// Collective.
[[nodiscard]] std::shared_ptr<Lane> open_lane(const Membership& members, const aggregation::Config& config);

}  // namespace weft::process_group
