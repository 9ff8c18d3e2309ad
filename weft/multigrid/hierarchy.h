// TimeHierarchy: the time grids from fine to coarse and the owner of each point. Pure arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/multigrid/per_level.h"
#include "weft/multigrid/problem/problem.h"
#include "weft/partition/range.h"

namespace weft::multigrid {

struct HierarchyOptions {
  int max_levels = 2;
  // Ratio between the points of a level and those of the next coarser one; at least 2.
  PerLevel<std::int64_t> coarsening{2};
  // Every level except the finest has at least this many steps.
  std::int64_t min_coarse_steps = 2;
  // Rank r owns the fine points [offsets[r], offsets[r + 1]); a rank may own no points. If empty, the steps are divided
  // evenly. A rank owns the points that its steps lead to; rank 0 also owns point 0.
  std::vector<std::int64_t> offsets;
  // Times of the first and the last point. The points between them are equidistant unless `times` is set.
  double t_begin = 0;
  double t_end = 1;
  // Times of all steps + 1 points; replaces t_begin and t_end unless it is empty.
  std::vector<double> times;
};

// Fine points are 0..steps. Point i of a level is a C-point if i is a multiple of the level's coarsening factor; it is
// then point i / factor of the next level. The other points are F-points. The owner of a fine point owns it on every
// level and takes the steps that lead to it. Immutable and equal on all ranks.
class TimeHierarchy {
 public:
  // Throws std::invalid_argument for invalid options.
  TimeHierarchy(std::int64_t steps, int ranks, const HierarchyOptions& options = {});

  [[nodiscard]] int levels() const noexcept { return static_cast<int>(strides_.size()); }
  [[nodiscard]] int coarsest() const noexcept { return levels() - 1; }
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(offsets_.size()) - 1; }
  [[nodiscard]] std::int64_t steps(int level = 0) const { return steps_ / stride(level); }
  // The number of fine steps that one step of a level covers.
  [[nodiscard]] std::int64_t stride(int level) const { return strides_[static_cast<std::size_t>(level)]; }
  [[nodiscard]] std::int64_t factor(int level) const { return factors_[static_cast<std::size_t>(level)]; }
  [[nodiscard]] bool is_c_point(int level, std::int64_t index) const { return index % factor(level) == 0; }

  // The points of a level that a rank owns.
  [[nodiscard]] partition::Range points(int level, int rank) const;
  [[nodiscard]] int owner(int level, std::int64_t index) const;
  // The owner of the point before (after) the points of `rank`, which need not be an adjacent rank. Empty at the first
  // (last) point, and for a rank without points on that level.
  [[nodiscard]] std::optional<int> before(int level, int rank) const;
  [[nodiscard]] std::optional<int> after(int level, int rank) const;

  [[nodiscard]] double time(std::int64_t fine_index) const;
  [[nodiscard]] Place place(int level, std::int64_t index) const;
  // The step from point `index`.
  [[nodiscard]] Step step(int level, std::int64_t index, bool final = false) const;

  // A fingerprint that ranks compare; equal for equal hierarchies.
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
