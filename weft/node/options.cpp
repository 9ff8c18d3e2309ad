#include "weft/node/options.h"

#include <charconv>
#include <cstdlib>
#include <sstream>
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

// Reads up to four sizes in the order of Options, separated by commas.
void read_sizes(const char* name, Options& options) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return;
  std::istringstream numbers(text);
  std::string number;
  for (std::int64_t* size :
       {&options.one_step_bytes, &options.two_step_bytes, &options.copy_bytes, &options.chunk_bytes}) {
    if (!std::getline(numbers, number, ',')) return;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *size);
    if (error != std::errc() || end != number.data() + number.size()) {
      throw std::invalid_argument(std::string("weft: ") + name +
                                  " must contain numbers of bytes separated by commas, got '" + text + "'");
    }
  }
}

void require_positive(const char* name, std::int64_t value) {
  if (value > 0) return;
  throw std::invalid_argument(std::string("weft: ") + name + " must be positive, got " + std::to_string(value));
}

void validate(const Options& options) {
  require_positive("one_step_bytes", options.one_step_bytes);
  require_positive("two_step_bytes", options.two_step_bytes);
  require_positive("copy_bytes", options.copy_bytes);
  require_positive("chunk_bytes", options.chunk_bytes);
}

}  // namespace

Options Options::from_environment() {
  Options options;
  options.segment = flag("WEFT_NODE", options.segment);
  options.cross_memory = flag("WEFT_CROSS_MEMORY", options.cross_memory);
  read_sizes("WEFT_NODE_SIZES", options);
  validate(options);
  return options;
}

const Options& options() { return current(); }

void set_options(const Options& options) {
  validate(options);
  current() = options;
}

}  // namespace weft::node
