#include "apps/weft/banner_filter.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace weft::command {
namespace {

constexpr std::size_t kLongest = 4000;  // a longer block is not a banner

bool is_rule(const std::string& line) {
  return line.size() > 60 && line.find_first_not_of("-\r\n") == std::string::npos;
}

// The ranks print their own message before they exit or abort.
bool repeats_a_failure(const std::string& block) {
  constexpr std::array<std::string_view, 3> kBegins{"MPI_ABORT was invoked", "prterun has exited due to process rank",
                                                    "prterun detected that one or more processes exited with non-zero"};
  const auto newline = std::find(block.begin(), block.end(), '\n');
  const std::string_view text(newline == block.end() ? newline : newline + 1, block.end());
  return std::any_of(kBegins.begin(), kBegins.end(), [&](std::string_view begin) { return text.starts_with(begin); });
}

}  // namespace

std::string BannerFilter::add(std::string_view output) {
  std::string shown;
  for (const char c : output) {
    if (c == '\0') continue;  // prterun sends the end of its strings
    line_ += c;
    if (c == '\n') take_line(std::exchange(line_, {}), shown);
  }
  return shown;
}

void BannerFilter::take_line(const std::string& line, std::string& shown) {
  const bool inside = !block_.empty();
  if (!inside && !is_rule(line)) {
    shown += line;
    return;
  }
  block_ += line;
  if (!inside || (!is_rule(line) && block_.size() < kLongest)) return;
  const std::string block = std::exchange(block_, {});
  if (!repeats_a_failure(block)) shown += block;
}

std::string BannerFilter::finish() { return std::exchange(block_, {}) + std::exchange(line_, {}); }

}  // namespace weft::command
