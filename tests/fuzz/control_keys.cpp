// Fuzz target: parsing a keys file succeeds with long secrets or throws a KeysError that names the file.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "weft/control/keys.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto keys = weft::control::JobKeys::parse(text, "fuzzed.yaml");
    const auto* job = keys.find("resnet");
    if (job != nullptr && (job->secret.size() < 16 || job->slots < 0 || job->workers < 0)) std::abort();
  } catch (const weft::control::KeysError& error) {
    if (std::string(error.what()).find("fuzzed.yaml") == std::string::npos) std::abort();
  }
  return 0;
}
