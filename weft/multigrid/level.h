// Level: one rank's part of a time grid, with its points, neighbouring ranks and states.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/multigrid/hierarchy.h"
#include "weft/multigrid/problem/state.h"

namespace weft::multigrid {

class Level {
 public:
  Level(const TimeHierarchy& hierarchy, int number, int rank);

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] std::int64_t begin() const noexcept { return points_.begin; }
  [[nodiscard]] std::int64_t end() const noexcept { return points_.end; }
  [[nodiscard]] bool empty() const noexcept { return points_.empty(); }
  [[nodiscard]] bool owns(std::int64_t index) const noexcept { return points_.contains(index); }
  // The first point that a step of this rank leads to; no step leads to point 0.
  [[nodiscard]] std::int64_t first_target() const noexcept { return begin() == 0 ? 1 : begin(); }
  [[nodiscard]] std::int64_t factor() const noexcept { return factor_; }
  [[nodiscard]] bool is_c_point(std::int64_t index) const noexcept { return index % factor_ == 0; }
  // The owners of the points before and after the points of this rank.
  [[nodiscard]] const std::optional<int>& before() const noexcept { return before_; }
  [[nodiscard]] const std::optional<int>& after() const noexcept { return after_; }

  // States by index on this level, for points that this rank owns. F-points of u may be empty; sweeps compute them.
  [[nodiscard]] State& u(std::int64_t index) { return at(u_, index); }
  [[nodiscard]] const State& u(std::int64_t index) const { return u_[static_cast<std::size_t>(index - begin())]; }
  // The value of u that the finer level injected; empty means zero. Coarse levels only.
  [[nodiscard]] State& v(std::int64_t index) { return at(v_, index); }
  // The right-hand side of the equation u[i] = step(u[i-1]) + rhs; empty means zero.
  [[nodiscard]] State& rhs(std::int64_t index) { return at(rhs_, index); }

  void clear() noexcept;
  // Keeps only the C-points of u.
  void clear_f_points() noexcept;

 private:
  [[nodiscard]] State& at(std::vector<State>& states, std::int64_t index) {
    return states[static_cast<std::size_t>(index - begin())];
  }

  int number_;
  std::int64_t factor_;
  partition::Range points_;
  std::optional<int> before_;
  std::optional<int> after_;
  std::vector<State> u_, v_, rhs_;
};

}  // namespace weft::multigrid
