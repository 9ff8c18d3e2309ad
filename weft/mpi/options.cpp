#include "weft/mpi/options.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>

namespace weft::mpi {
namespace {

double number(const char* name, double fallback, double least, double most) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return fallback;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !(value >= least && value <= most)) {
    throw std::invalid_argument(std::string("weft: ") + name + " must be a number from " + std::to_string(least) +
                                " to " + std::to_string(most) + ", got '" + text + "'");
  }
  return value;
}

bool flag(const char* name, bool fallback) {
  return number(name, fallback ? 1 : 0, 0, std::numeric_limits<int>::max()) != 0;
}

std::chrono::milliseconds seconds(const char* name, std::chrono::milliseconds fallback) {
  const double value = number(name, static_cast<double>(fallback.count()) / 1000, 0, kLongestWait);
  return std::chrono::milliseconds(static_cast<std::int64_t>(value * 1000));
}

Options& current() {
  static Options options = Options::from_environment();
  return options;
}

}  // namespace

Options Options::from_environment() {
  Options options;
  options.timeout = seconds("WEFT_TIMEOUT", options.timeout);
  options.warn_after = seconds("WEFT_WARN", std::min(options.warn_after, options.timeout / 2));
  options.debug = flag("WEFT_DEBUG", options.debug);
  options.check = flag("WEFT_CHECK", options.check);
  options.cuda_aware = flag("WEFT_CUDA_AWARE", options.cuda_aware);
  options.max_count = static_cast<std::int64_t>(
      number("WEFT_MAX_COUNT", static_cast<double>(options.max_count), 1, std::numeric_limits<int>::max()));
  return options;
}

const Options& options() { return current(); }

void set_options(const Options& options) {
  if (options.max_count < 1 || options.max_count > std::numeric_limits<int>::max()) {
    throw std::invalid_argument("weft: max_count must be from 1 to " + std::to_string(std::numeric_limits<int>::max()) +
                                ", got " + std::to_string(options.max_count));
  }
  current() = options;
}

}  // namespace weft::mpi
