// Rate limit for log lines that clients can cause.
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

  // Returns the line to write, with the number of lines suppressed since the last one; nullopt: suppress the line.
  // Thread-safe.
  [[nodiscard]] std::optional<std::string> pass(const std::string& line, Clock::time_point now);

 private:
  std::mutex mutex_;
  std::optional<Clock::time_point> second_;  // start of the current second
  int written_ = 0;                          // lines written in this second
  std::uint64_t left_out_ = 0;
};

}  // namespace weft::control
