// Status of the switch as Prometheus metrics and as an HTML page.
#pragma once

#include <string>

#include "weft/aggregation/switch/switch_status.h"
#include "weft/control/event_counters.h"

namespace weft::control {

struct Status {
  aggregation::Snapshot jobs;
  const EventCounters* counters = nullptr;
  std::size_t connections = 0;
  double uptime_s = 0;
  std::string version;
};

// Metrics in Prometheus' text format 0.0.4.
[[nodiscard]] std::string metrics(const Status& status);
// Status page in HTML, without scripts.
[[nodiscard]] std::string page(const Status& status);

}  // namespace weft::control
