// Nonces that the switch has issued. Each is valid for one request and a short time.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

namespace weft::control {

class Nonces {
 public:
  using Clock = std::chrono::steady_clock;
  // `capacity` limits the memory; the oldest nonce is dropped first.
  explicit Nonces(std::chrono::milliseconds life = std::chrono::seconds(30), std::size_t capacity = 4096);

  [[nodiscard]] std::string issue(Clock::time_point now);
  // Consumes a nonce. Returns whether it was issued, has not expired and was not consumed before.
  [[nodiscard]] bool take(const std::string& nonce, Clock::time_point now);

 private:
  std::chrono::milliseconds life_;
  std::size_t capacity_;
  std::mutex mutex_;
  std::deque<std::string> order_;
  std::unordered_map<std::string, Clock::time_point> issued_;
};

}  // namespace weft::control
