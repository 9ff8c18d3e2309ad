// How far a long task is: a bar that is redrawn on a terminal, a line now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace weft::trace {

class ProgressBar {
 public:
  // `title` stands in front: "epoch 2/5". Writes to `out`, which outlives it. Its being a terminal decides the form,
  // unless the caller knows better: launchers give ranks a terminal of their own and pass on what is written there.
  ProgressBar(std::string title, std::int64_t total, std::FILE* out = stdout,
              std::optional<bool> on_terminal = std::nullopt);
  // As finish().
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `done` of `total`; `text` stands behind: "loss 0.31". On a terminal drawn at most ten times a second, and at the
  // end; elsewhere a line for each tenth.
  void update(std::int64_t done, const std::string& text = "");
  // Takes the bar off a terminal, so that what is printed next stands in its place. Once.
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
  std::int64_t tenths_ = 0;  // for which a line was written
  Clock::time_point begun_ = Clock::now();
  Clock::time_point last_;
};

}  // namespace weft::trace
