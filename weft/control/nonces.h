// The nonces that a switch has handed out: each is good for one set-up, soon.
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
  // `capacity` bounds the memory that those who only ask can take: the oldest is forgotten first.
  explicit Nonces(std::chrono::milliseconds life = std::chrono::seconds(30), std::size_t capacity = 4096);

  [[nodiscard]] std::string issue(Clock::time_point now);
  // Whether it was issued, is fresh and was not taken before; afterwards it was.
  [[nodiscard]] bool take(const std::string& nonce, Clock::time_point now);

 private:
  std::chrono::milliseconds life_;
  std::size_t capacity_;
  std::mutex mutex_;
  std::deque<std::string> order_;
  std::unordered_map<std::string, Clock::time_point> issued_;
};

}  // namespace weft::control
