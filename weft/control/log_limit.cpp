#include "weft/control/log_limit.h"

#include <utility>

namespace weft::control {

std::optional<std::string> LogLimit::pass(const std::string& line, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (!second_ || now - *second_ >= std::chrono::seconds(1)) {
    second_ = now;
    written_ = 0;
  }
  if (written_ == kLinesPerSecond) {
    ++left_out_;
    return std::nullopt;
  }
  ++written_;
  const std::uint64_t left_out = std::exchange(left_out_, 0);
  return left_out == 0 ? line : line + " (and " + std::to_string(left_out) + " more suppressed)";
}

}  // namespace weft::control
