// Keeps lines that strangers can cause from filling the log: so many a second, and later how many were left out.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace weft::control {

class LogLimit {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLinesPerSecond = 10;

  // What to write of a line at that time: with it, how many were left out since the last one. Nothing: leave it out.
  // By any thread.
  [[nodiscard]] std::optional<std::string> pass(const std::string& line, Clock::time_point now);

 private:
  std::mutex mutex_;
  std::optional<Clock::time_point> second_;  // when the present one began
  int written_ = 0;                          // in it
  std::uint64_t left_out_ = 0;
};

}  // namespace weft::control
