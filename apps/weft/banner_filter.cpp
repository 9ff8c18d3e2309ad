#include "apps/weft/banner_filter.h"

#include <algorithm>
#include <array>
#include <utility>

namespace weft::command {
namespace {

constexpr std::size_t kLongest = 4000;  // a longer block is not a banner

bool is_rule(const std::string& line) {
  return line.size() > 60 && line.find_first_not_of("-\r\n") == std::string::npos;
}

// The ranks print their own message before they exit or abort.
bool repeats_a_failure(const std::string& block) {
  constexpr std::array<const char*, 3> kBegins{"MPI_ABORT was invoked", "prterun has exited due to process rank",
                                               "prterun detected that one or more processes exited with non-zero"};
  const std::size_t text = block.find('\n') + 1;
  return std::any_of(kBegins.begin(), kBegins.end(), [&](const char* begin) {
    return block.compare(text, std::string_view(begin).size(), begin) == 0;
  });
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
