#include "weft/experiment/file/problems.h"

#include <algorithm>
#include <tuple>

namespace weft::experiment {
namespace {

constexpr std::size_t kShown = 20;

}  // namespace

std::string located(const std::string& file, const Place& place, const std::string& text) {
  std::string line = file;
  if (place.line > 0) {
    line.append(":").append(std::to_string(place.line)).append(":").append(std::to_string(place.column));
  }
  return line.append(": ").append(text);
}

void Problems::add(const Place& place, const std::string& text) {
  // Drops duplicates: readers visit an aliased value once per alias and report its problems each time.
  const bool known = std::any_of(lines_.begin(), lines_.end(), [&](const Line& line) {
    return line.place.line == place.line && line.place.column == place.column && line.text == text;
  });
  if (!known && !full()) lines_.push_back({place, text});
}

void Problems::note(const Place& place, const std::string& text) {
  const std::string line = shown({place, "note: " + text});
  if (std::find(notes_.begin(), notes_.end(), line) == notes_.end()) notes_.push_back(line);
}

bool Problems::full() const noexcept { return lines_.size() > kShown; }

std::string Problems::shown(const Line& line) const {
  const auto override = static_cast<std::size_t>(-line.place.line) - 1;
  if (line.place.line >= 0 || override >= overrides_.size()) return located(file_, line.place, line.text);
  return "--set " + overrides_[override] + ": " + line.text;
}

void Problems::throw_if_any() const {
  if (lines_.empty()) return;
  auto sorted = lines_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Line& a, const Line& b) {
    return std::tie(a.place.line, a.place.column) < std::tie(b.place.line, b.place.column);
  });
  std::string text;
  for (std::size_t i = 0; i < std::min(sorted.size(), kShown); ++i) {
    text.append(i == 0 ? "" : "\n").append(shown(sorted[i]));
  }
  if (sorted.size() > kShown) text.append("\n").append(file_).append(": more mistakes follow; fix these first");
  throw ExperimentError(text);
}

}  // namespace weft::experiment
