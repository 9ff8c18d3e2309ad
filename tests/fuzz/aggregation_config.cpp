// Fuzz target: parsing a configuration file succeeds or throws a ConfigError that names the file.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "weft/aggregation/config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    (void)weft::aggregation::parse_config(text, "fuzzed.cfg");
  } catch (const weft::aggregation::ConfigError& error) {
    if (std::string(error.what()).find("fuzzed.cfg") == std::string::npos) std::abort();
  }
  return 0;
}
