#include "weft/node/options.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace weft::node {
namespace {

bool flag(const char* name, bool fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return fallback;
  const std::string value(text);
  if (value != "0" && value != "1") {
    throw std::invalid_argument(std::string("weft: ") + name + " must be 0 or 1, got '" + value + "'");
  }
  return value == "1";
}

Options& current() {
  static Options options = Options::from_environment();
  return options;
}

void require_positive(const char* name, std::int64_t value) {
  if (value > 0) return;
  throw std::invalid_argument(std::string("weft: ") + name + " must be positive, got " + std::to_string(value));
}

}  // namespace

Options Options::from_environment() {
  Options options;
  options.segment = flag("WEFT_NODE", options.segment);
  options.cross_memory = flag("WEFT_CROSS_MEMORY", options.cross_memory);
  return options;
}

const Options& options() { return current(); }

void set_options(const Options& options) {
  require_positive("one_step_bytes", options.one_step_bytes);
  require_positive("two_step_bytes", options.two_step_bytes);
  require_positive("copy_bytes", options.copy_bytes);
  require_positive("chunk_bytes", options.chunk_bytes);
  current() = options;
}

}  // namespace weft::node
