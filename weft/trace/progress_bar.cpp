#include "weft/trace/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace weft::trace {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::int64_t kBarWidth = 30;
constexpr std::size_t kNarrowest = 20;

std::size_t width_of(std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::max<std::size_t>(size.ws_col, kNarrowest);
}

// Launchers connect ranks to a pseudo-terminal even if their own output is redirected. scripts/mpirun and `weft train
// -n` therefore set WEFT_PROGRESS.
bool wants_bar(std::FILE* out) {
  const char* setting = std::getenv("WEFT_PROGRESS");
  const std::string_view format = setting == nullptr ? "" : setting;
  if (format == "bar" || format == "lines") return format == "bar";
  return isatty(fileno(out)) == 1;
}

std::string format_duration(std::int64_t seconds) {
  std::array<char, 32> text{};
  if (seconds >= 3600) {
    std::snprintf(text.data(), text.size(), "%ld:%02ld:%02ld", static_cast<long>(seconds / 3600),
                  static_cast<long>(seconds / 60 % 60), static_cast<long>(seconds % 60));
  } else {
    std::snprintf(text.data(), text.size(), "%ld:%02ld", static_cast<long>(seconds / 60),
                  static_cast<long>(seconds % 60));
  }
  return text.data();
}

}  // namespace

ProgressBar::ProgressBar(std::string title, std::int64_t total, std::FILE* out)
    : title_(std::move(title)), total_(std::max<std::int64_t>(total, 0)), out_(out), terminal_(wants_bar(out)) {}

ProgressBar::~ProgressBar() { finish(); }

void ProgressBar::update(std::int64_t done, const std::string& text) {
  done_ = std::clamp<std::int64_t>(done, 0, total_);
  if (terminal_) {
    const auto now = Clock::now();
    if (drawn_ && now - last_ < kRedraw && done_ < total_) return;
    last_ = now;
    return draw(text);
  }
  const std::int64_t tenths = total_ == 0 ? 10 : done_ * 10 / total_;
  if (tenths <= tenths_) return;
  tenths_ = tenths;
  std::fprintf(out_, "%s  %ld/%ld%s%s\n", title_.c_str(), static_cast<long>(done_), static_cast<long>(total_),
               text.empty() ? "" : "  ", text.c_str());
  std::fflush(out_);
}

void ProgressBar::draw(const std::string& text) {
  const std::int64_t filled = total_ == 0 ? kBarWidth : done_ * kBarWidth / total_;
  std::string line = title_ + " [" + std::string(static_cast<std::size_t>(filled), '#') +
                     std::string(static_cast<std::size_t>(kBarWidth - filled), '.') + "] " + std::to_string(done_) +
                     "/" + std::to_string(total_) + " " + remaining() + (text.empty() ? "" : "  " + text);
  // A wrapped line cannot be redrawn.
  line.resize(std::min(line.size(), width_of(out_) - 1));
  std::fprintf(out_, "\r\x1b[K%s", line.c_str());
  std::fflush(out_);
  drawn_ = true;
}

std::string ProgressBar::remaining() const {
  if (done_ == 0) return "";
  const double elapsed = std::chrono::duration<double>(Clock::now() - started_).count();
  return format_duration(
             static_cast<std::int64_t>(elapsed * static_cast<double>(total_ - done_) / static_cast<double>(done_))) +
         " left";
}

void ProgressBar::finish() noexcept {
  if (!drawn_) return;
  drawn_ = false;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
}

}  // namespace weft::trace
