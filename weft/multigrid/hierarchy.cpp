#include "weft/multigrid/hierarchy.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "weft/mpi/fingerprint.h"

namespace weft::multigrid {
namespace {

using Offsets = std::vector<std::int64_t>;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument("TimeHierarchy: " + what);
}

Offsets balanced_offsets(std::int64_t steps, int ranks) {
  Offsets offsets(1, 0);
  // A rank owns the points that its steps lead to, hence the + 1.
  for (int rank = 0; rank < ranks; ++rank) offsets.push_back(partition::balanced(steps, ranks, rank).end + 1);
  return offsets;
}

void check_offsets(const Offsets& offsets, std::int64_t steps, int ranks) {
  require(static_cast<int>(offsets.size()) == ranks + 1, "expected " + std::to_string(ranks + 1) +
                                                             " offsets (one more than ranks), got " +
                                                             std::to_string(offsets.size()));
  require(offsets.front() == 0 && offsets.back() == steps + 1,
          "offsets must go from 0 to the number of points (" + std::to_string(steps + 1) + "), got " +
              std::to_string(offsets.front()) + " to " + std::to_string(offsets.back()));
  require(std::is_sorted(offsets.begin(), offsets.end()), "offsets must not decrease");
}

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

}  // namespace

TimeHierarchy::TimeHierarchy(std::int64_t steps, int ranks, const HierarchyOptions& options)
    : steps_(steps), t_begin_(options.t_begin), t_end_(options.t_end), times_(options.times) {
  require(steps >= 1, "steps must be at least 1, got " + std::to_string(steps));
  require(ranks >= 1, "ranks must be at least 1, got " + std::to_string(ranks));
  require(options.max_levels >= 1, "max_levels must be at least 1, got " + std::to_string(options.max_levels));
  require(options.min_coarse_steps >= 1,
          "min_coarse_steps must be at least 1, got " + std::to_string(options.min_coarse_steps));
  require(times_.empty() || static_cast<std::int64_t>(times_.size()) == steps + 1,
          "expected times of all " + std::to_string(steps + 1) + " points, got " + std::to_string(times_.size()));
  offsets_ = options.offsets.empty() ? balanced_offsets(steps, ranks) : options.offsets;
  check_offsets(offsets_, steps, ranks);
  step_size_ = (t_end_ - t_begin_) / static_cast<double>(steps);
  coarsen(options);
}

void TimeHierarchy::coarsen(const HierarchyOptions& options) {
  strides_.push_back(1);
  for (int level = 0;; ++level) {
    const std::int64_t factor = options.coarsening[level];
    require(factor >= 2, "coarsening factors must be at least 2, got " + std::to_string(factor) + " on level " +
                             std::to_string(level));
    factors_.push_back(factor);
    const std::int64_t coarse_steps = this->steps(level) / factor;
    if (level + 1 == options.max_levels || coarse_steps < options.min_coarse_steps) return;
    strides_.push_back(strides_.back() * factor);
  }
}

partition::Range TimeHierarchy::points(int level, int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return {divide_up(offsets_[r], stride(level)), divide_up(offsets_[r + 1], stride(level))};
}

int TimeHierarchy::owner(int level, std::int64_t index) const {
  // The last offset at or below the point. Ranks without points have the same offset as the next rank, which wins.
  const auto above = std::upper_bound(offsets_.begin(), offsets_.end(), index * stride(level));
  return static_cast<int>(above - offsets_.begin()) - 1;
}

std::optional<int> TimeHierarchy::before(int level, int rank) const {
  const partition::Range mine = points(level, rank);
  if (mine.empty() || mine.begin == 0) return std::nullopt;
  return owner(level, mine.begin - 1);
}

std::optional<int> TimeHierarchy::after(int level, int rank) const {
  const partition::Range mine = points(level, rank);
  if (mine.empty() || mine.end > steps(level)) return std::nullopt;
  return owner(level, mine.end);
}

double TimeHierarchy::time(std::int64_t fine_index) const {
  if (!times_.empty()) return times_[static_cast<std::size_t>(fine_index)];
  if (fine_index == steps_) return t_end_;  // exactly, without rounding errors
  return t_begin_ + step_size_ * static_cast<double>(fine_index);
}

Place TimeHierarchy::place(int level, std::int64_t index) const {
  const std::int64_t fine = index * stride(level);
  return {level, index, fine, time(fine)};
}

Step TimeHierarchy::step(int level, std::int64_t index, bool final) const {
  const std::int64_t start = index * stride(level);
  const std::int64_t stop = start + stride(level);
  return {level, index, start, stop, time(start), time(stop), final};
}

std::uint64_t TimeHierarchy::signature() const {
  mpi::Fingerprint signature;
  signature.add(steps_).add(levels()).add(factors_.back()).add(t_begin_).add(t_end_);
  for (const std::int64_t stride : strides_) signature.add(stride);
  for (const std::int64_t offset : offsets_) signature.add(offset);
  for (const double time : times_) signature.add(time);
  return signature.value();
}

}  // namespace weft::multigrid
