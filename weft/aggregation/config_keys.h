// Every key of the configuration file: where it is kept and what it may be.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/aggregation/config.h"

namespace weft::aggregation {

struct ConfigKey {
  std::string section;  // "general", "backend.udp", ...
  std::string name;
  std::string allowed;  // for messages
  // Whether the value was allowed, and kept.
  std::function<bool(Config&, const std::string& value)> set;

  // WEFT_SML_TIMEOUT, WEFT_SML_UDP_WORKER_IP: keys of [general] and [weft] by themselves, others after their backend.
  [[nodiscard]] std::string variable() const;
};

[[nodiscard]] const std::vector<ConfigKey>& config_keys();
// Sections in the order of the documentation, each once.
[[nodiscard]] std::vector<std::string> config_sections();

}  // namespace weft::aggregation
