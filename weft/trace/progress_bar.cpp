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
constexpr std::chrono::seconds kLine{10};
constexpr std::size_t kBarWidth = 30;
constexpr std::size_t kSmallestBar = 3;
constexpr const char* kEraseLineAbove = "\x1b[1A\r\x1b[K";
constexpr std::size_t kNarrowest = 20;

// Behind a launcher, `out` is a pipe. scripts/mpirun and `weft train -n` then set COLUMNS.
std::size_t width_of(std::FILE* out) {
  winsize size{};
  std::size_t width = 80;
  const char* const columns = std::getenv("COLUMNS");
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    width = size.ws_col;
  } else if (columns != nullptr && std::atoi(columns) > 0) {
    width = static_cast<std::size_t>(std::atoi(columns));
  }
  return std::max(width, kNarrowest);
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
  const auto now = Clock::now();
  if (tenths <= tenths_ && now - last_ < kLine) return;
  tenths_ = tenths;
  last_ = now;
  std::fprintf(out_, "%s  %ld/%ld%s%s\n", title_.c_str(), static_cast<long>(done_), static_cast<long>(total_),
               text.empty() ? "" : "  ", text.c_str());
  std::fflush(out_);
}

// A launcher forwards complete lines only. Every drawing therefore ends with a newline, and first moves the cursor up
// to the line of the previous drawing.
void ProgressBar::draw(const std::string& text) {
  const std::string left = remaining();
  const std::string counts = std::to_string(done_) + "/" + std::to_string(total_) + (left.empty() ? "" : " " + left) +
                             (text.empty() ? "" : "  " + text);
  const std::size_t width = width_of(out_) - 1;                  // a wrapped line cannot be redrawn
  const std::size_t others = title_.size() + counts.size() + 4;  // two spaces and two brackets
  const std::size_t bar = width > others ? std::min(width - others, kBarWidth) : 0;
  const std::size_t filled =
      total_ == 0 ? bar : static_cast<std::size_t>(done_) * bar / static_cast<std::size_t>(total_);
  std::string line = title_ + " ";
  if (bar >= kSmallestBar) line.append("[").append(filled, '#').append(bar - filled, '.').append("] ");
  line += counts;
  line.resize(std::min(line.size(), width));
  std::fprintf(out_, "%s%s\n", drawn_ ? kEraseLineAbove : "", line.c_str());
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
  std::fputs(kEraseLineAbove, out_);
  std::fflush(out_);
}

}  // namespace weft::trace
