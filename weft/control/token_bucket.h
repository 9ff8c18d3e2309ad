// Rate limit that lets a client run into debt: after an expensive step, it waits until the debt is paid.
#pragma once

#include <algorithm>
#include <chrono>

namespace weft::control {

class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;

  // Starts full, with `capacity` tokens, and gains `per_second` tokens.
  TokenBucket(double capacity, double per_second, Clock::time_point now)
      : capacity_(capacity), per_second_(per_second), tokens_(capacity), last_(now) {}

  // Whether the client may take the next step.
  [[nodiscard]] bool has_tokens(Clock::time_point now) const { return tokens_at(now) > 0; }
  [[nodiscard]] bool is_full(Clock::time_point now) const { return tokens_at(now) >= capacity_; }
  void take(double tokens, Clock::time_point now) {
    tokens_ = tokens_at(now) - tokens;
    last_ = now;
  }

 private:
  [[nodiscard]] double tokens_at(Clock::time_point now) const {
    return std::min(capacity_, tokens_ + per_second_ * std::chrono::duration<double>(now - last_).count());
  }

  double capacity_;
  double per_second_;
  double tokens_;
  Clock::time_point last_;
};

}  // namespace weft::control
