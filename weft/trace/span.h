// Scoped spans for the trace. A span costs one load and one branch while recording is off.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace weft::trace {

using Clock = std::chrono::steady_clock;

namespace detail {
extern std::atomic<bool> recording;
void record(const char* name, Clock::time_point begin, std::int64_t detail);
}  // namespace detail

[[nodiscard]] inline bool recording() noexcept { return detail::recording.load(std::memory_order_relaxed); }

// Returns a copy of `name` that lives until the process ends, for span names that are created at run time. Equal names
// share one copy.
[[nodiscard]] const char* intern(const std::string& name);

class Span {
 public:
  // `name` is a string literal or comes from intern(); by convention "folder/activity". `detail` is shown with the
  // span, for example a batch number or a number of bytes.
  explicit Span(const char* name, std::int64_t detail = kNoDetail) noexcept : detail_(detail) {
    if (!recording()) return;
    name_ = name;
    begin_ = Clock::now();
  }
  ~Span() {
    if (name_ != nullptr) detail::record(name_, begin_, detail_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  static constexpr std::int64_t kNoDetail = INT64_MIN;

 private:
  const char* name_ = nullptr;
  std::int64_t detail_;
  Clock::time_point begin_;
};

}  // namespace weft::trace
