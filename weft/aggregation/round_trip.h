// How long to wait before sending again: a smoothed round trip and its variation (as in RFC 6298), with bounds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "weft/aggregation/time.h"

namespace weft::aggregation {

struct RetransmissionOptions {
  Duration first = std::chrono::milliseconds(20);  // before anything was measured
  Duration least = std::chrono::milliseconds(5);   // a worker may lose its core for that long
  Duration most = std::chrono::milliseconds(250);  // however often a packet was sent again
  int overtaken_by = 16;  // later packets with an answer: the packet is sent again at once; 0: never
  int probes = 8;         // packets sent again at a time while nothing at all comes back: peers may not be there yet
};

class RoundTrip {
 public:
  explicit RoundTrip(const RetransmissionOptions& options) : options_(options) {}

  // A result came, so long after its packet was sent first and last. Of a packet sent twice nobody knows which one was
  // answered, unless the answer came too soon to be the second's: then the wait was too short, and must be learnt from.
  void answered(Duration since_first, Duration since_last, int tries) {
    if (tries == 0 || since_last < smoothed_ / 2) measured(since_first);
  }

  // Before try number `tries` + 1: doubles with every one, up to the cap.
  [[nodiscard]] Duration timeout(int tries) const {
    // Where the worker's own packets queue up, the round trip hardly varies until somebody else's are in the way:
    // twice.
    const Duration base =
        smoothed_ == Duration{0} ? options_.first : std::max(smoothed_ + 4 * variation_, 2 * smoothed_);
    const Duration doubled = std::max(base, options_.least) * (std::int64_t{1} << std::min(tries, 10));
    return std::min(doubled, options_.most);
  }
  [[nodiscard]] Duration smoothed() const { return smoothed_; }

 private:
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

  RetransmissionOptions options_;
  Duration smoothed_{0};
  Duration variation_{0};
};

}  // namespace weft::aggregation
