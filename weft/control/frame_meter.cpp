#include "weft/control/frame_meter.h"

#include <algorithm>

namespace weft::control {
namespace {

// Frame types of RFC 9113.
constexpr std::uint8_t kHeaders = 1;
constexpr std::uint8_t kResetStream = 3;
constexpr std::uint8_t kContinuation = 9;

}  // namespace

double FrameMeter::cost(std::string_view bytes) {
  double total = 0;
  while (!bytes.empty()) {
    const std::size_t skipped = std::min(skip_, bytes.size());
    skip_ -= skipped;
    bytes.remove_prefix(skipped);
    const std::size_t count = std::min(kHeaderBytes - read_, bytes.size());
    std::copy_n(bytes.begin(), count, header_.begin() + static_cast<std::ptrdiff_t>(read_));
    read_ += count;
    bytes.remove_prefix(count);
    if (read_ == kHeaderBytes) total += begin_frame();
  }
  return total;
}

double FrameMeter::begin_frame() {
  const std::size_t length = static_cast<std::size_t>(header_[0]) << 16 | static_cast<std::size_t>(header_[1]) << 8 |
                             static_cast<std::size_t>(header_[2]);
  const std::uint8_t type = header_[3];
  skip_ = length;
  read_ = 0;
  const bool request = type == kHeaders || type == kResetStream || type == kContinuation;
  return (request ? kRequest : kOther) + kPerKibibyte * static_cast<double>(length) / 1024;
}

}  // namespace weft::control
