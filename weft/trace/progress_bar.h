// Progress of a long task: a redrawn bar on a terminal, occasional lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace weft::trace {

class ProgressBar {
 public:
  // `title` precedes the bar, for example "epoch 2/5"; `out` must outlive this object. The environment variable
  // WEFT_PROGRESS selects the format (bar or lines); the default is a bar if `out` is a terminal.
  ProgressBar(std::string title, std::int64_t total, std::FILE* out = stdout);
  // Calls finish().
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Reports that `done` of `total` units are complete; `text` follows the bar, for example "loss 0.31". Redraws a bar
  // at most ten times per second, or prints a line for each tenth of the total and every ten seconds.
  void update(std::int64_t done, const std::string& text = "");
  // Erases the bar, so that the next output replaces it.
  void finish() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const std::string& text);
  [[nodiscard]] std::string remaining() const;

  std::string title_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  std::FILE* out_;
  bool terminal_;
  bool drawn_ = false;
  std::int64_t tenths_ = 0;  // tenths that the last printed line reported
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_ = started_;
};

}  // namespace weft::trace
