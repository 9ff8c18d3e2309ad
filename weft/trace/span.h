// Marks what a thread does from here to the end of the scope; costs one load and a branch where nobody records.
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

// Keeps a name for the rest of the process: for spans whose name is made at run time. Equal names are kept once.
[[nodiscard]] const char* intern(const std::string& name);

class Span {
 public:
  // `name` must outlive the process's recording: a literal, or from intern(). By convention "folder/what". `detail` is
  // shown with the span: a batch's number, bytes.
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
