// How long to wait before sending again: a smoothed round trip and its variation (as in RFC 6298), with bounds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "weft/aggregation/time.h"

namespace weft::aggregation {

struct RetransmissionOptions {
  Duration first = std::chrono::milliseconds(20);  // before anything was measured
  Duration least = std::chrono::milliseconds(4);   // a worker may lose its core for that long
  Duration most = std::chrono::milliseconds(250);  // however often a packet was sent again
  int probes = 8;  // packets sent again at a time while nothing at all comes back: peers may not be there yet
};

class RoundTrip {
 public:
  explicit RoundTrip(const RetransmissionOptions& options) : options_(options) {}

  // Of a packet that was sent once only: after a second one nobody knows which was answered.
  void measured(Duration sample) {
    if (smoothed_ == Duration{0}) {
      smoothed_ = sample;
      variation_ = sample / 2;
      return;
    }
    const Duration difference = sample > smoothed_ ? sample - smoothed_ : smoothed_ - sample;
    variation_ += (difference - variation_) / 4;
    smoothed_ += (sample - smoothed_) / 8;
  }

  // Before try number `tries` + 1: doubles with every one, up to the cap.
  [[nodiscard]] Duration timeout(int tries) const {
    const Duration base = smoothed_ == Duration{0} ? options_.first : smoothed_ + 4 * variation_;
    const Duration doubled = std::max(base, options_.least) * (std::int64_t{1} << std::min(tries, 10));
    return std::min(doubled, options_.most);
  }
  [[nodiscard]] Duration smoothed() const { return smoothed_; }

 private:
  RetransmissionOptions options_;
  Duration smoothed_{0};
  Duration variation_{0};
};

}  // namespace weft::aggregation
