// What the switch tells of itself: Prometheus metrics and a page to read.
#pragma once

#include <string>

#include "weft/aggregation/counters.h"
#include "weft/control/counters.h"

namespace weft::control {

struct Status {
  aggregation::Snapshot jobs;
  const Counters* counters = nullptr;
  std::size_t connections = 0;
  double uptime_s = 0;
  std::string version;
};

// In Prometheus' text format 0.0.4.
[[nodiscard]] std::string metrics(const Status& status);
// HTML without scripts.
[[nodiscard]] std::string page(const Status& status);

}  // namespace weft::control
