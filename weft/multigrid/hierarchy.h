// Time grids from fine to coarse, and which rank owns which points on each. Pure arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/multigrid/per_level.h"
#include "weft/multigrid/problem.h"
#include "weft/partition/range.h"

namespace weft::multigrid {

struct HierarchyOptions {
  int max_levels = 2;
  // Every how many-th point of a level is also on the next one; at least 2.
  PerLevel<std::int64_t> coarsening{2};
  // No level but the finest has fewer steps than this.
  std::int64_t min_coarse_steps = 2;
  // Rank r owns the fine points [offsets[r], offsets[r + 1]); ranks may own none. Empty: the steps are shared out
  // evenly, each with the point it leads to, and the first rank has point 0 besides.
  std::vector<std::int64_t> offsets;
  // Times of the first and the last point, the others evenly between them...
  double t_begin = 0;
  double t_end = 1;
  // ...or the times of all points, steps + 1 of them.
  std::vector<double> times;
};

// Fine points are 0..steps. Point i of a level is a C-point if i is a multiple of the level's coarsening factor, and
// then point i / factor of the next level; the others are F-points. The owner of a fine point owns it on every level,
// and takes the steps that lead into it. Immutable and the same on all ranks.
class TimeHierarchy {
 public:
  // Throws std::invalid_argument for options that make no sense.
  TimeHierarchy(std::int64_t steps, int ranks, const HierarchyOptions& options = {});

  [[nodiscard]] int levels() const noexcept { return static_cast<int>(strides_.size()); }
  [[nodiscard]] int coarsest() const noexcept { return levels() - 1; }
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(offsets_.size()) - 1; }
  [[nodiscard]] std::int64_t steps(int level = 0) const { return steps_ / stride(level); }
  // How many fine steps one step of a level stands for.
  [[nodiscard]] std::int64_t stride(int level) const { return strides_[static_cast<std::size_t>(level)]; }
  [[nodiscard]] std::int64_t factor(int level) const { return factors_[static_cast<std::size_t>(level)]; }
  [[nodiscard]] bool is_c_point(int level, std::int64_t index) const { return index % factor(level) == 0; }

  // The points of a level that a rank owns.
  [[nodiscard]] partition::Range points(int level, int rank) const;
  [[nodiscard]] int owner(int level, std::int64_t index) const;
  // The rank that owns the point before (after) those of `rank`, any number of ranks away; none at the ends of time and
  // for a rank without points on that level.
  [[nodiscard]] std::optional<int> before(int level, int rank) const;
  [[nodiscard]] std::optional<int> after(int level, int rank) const;

  [[nodiscard]] double time(std::int64_t fine_index) const;
  [[nodiscard]] Place place(int level, std::int64_t index) const;
  // The step out of point `index`.
  [[nodiscard]] Step step(int level, std::int64_t index, bool final = false) const;

  // Equal for equal hierarchies: what ranks compare.
  [[nodiscard]] std::uint64_t signature() const;

 private:
  void coarsen(const HierarchyOptions& options);

  std::int64_t steps_;
  std::vector<std::int64_t> strides_;
  std::vector<std::int64_t> factors_;
  std::vector<std::int64_t> offsets_;
  double t_begin_;
  double t_end_;
  double step_size_ = 0;
  std::vector<double> times_;
};

}  // namespace weft::multigrid
