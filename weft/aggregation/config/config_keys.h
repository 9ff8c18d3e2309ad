// Table of all keys of the configuration file, with their parsers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/aggregation/config/config.h"

namespace weft::aggregation {

struct ConfigKey {
  std::string section;  // "general", "backend.udp", ...
  std::string name;
  std::string allowed;  // allowed values, for error messages
  // Stores the value; returns false if it is not allowed.
  std::function<bool(Config&, const std::string& value)> set;

  // Name of the environment variable: WEFT_SML_TIMEOUT, or for keys of a backend WEFT_SML_UDP_WORKER_IP.
  [[nodiscard]] std::string variable() const;
};

[[nodiscard]] const std::vector<ConfigKey>& config_keys();
// Names of all sections, in the order of the documentation.
[[nodiscard]] std::vector<std::string> config_sections();

}  // namespace weft::aggregation
