// Retransmission timeout from the smoothed round-trip time and its variation (RFC 6298), with bounds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "weft/aggregation/packet/time.h"

namespace weft::aggregation {

struct RetransmissionOptions {
  Duration first = std::chrono::milliseconds(20);  // timeout before the first measurement
  Duration least = std::chrono::milliseconds(5);   // lower bound: a worker may be descheduled for this long
  Duration most = std::chrono::milliseconds(250);  // upper bound of the exponential back-off
  int reordering_threshold = 16;  // a packet counts as lost when one sent this much later is answered; 0: never
  int probes = 8;                 // packets retransmitted at a time while no results arrive: peers may not have started
};

class RoundTrip {
 public:
  explicit RoundTrip(const RetransmissionOptions& options) : options_(options) {}

  // Records a result and the times since its packet was first and last sent. The result of a retransmitted packet is
  // ambiguous and is skipped, unless it arrived too soon after the retransmission to belong to it: then the timeout was
  // too short.
  void answered(Duration since_first, Duration since_last, int tries) {
    if (tries == 0 || since_last < smoothed_ / 2) measured(since_first);
  }

  // Timeout before transmission number `tries` + 2: doubles each time, up to `most`.
  [[nodiscard]] Duration timeout(int tries) const {
    // While the worker's own packets fill a queue, the round trip hardly varies until other traffic arrives, so the
    // timeout is at least twice the round trip.
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
