#include "weft/multigrid/relax.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "weft/multigrid/residual.h"

namespace weft::multigrid {
namespace {

class Sweep {
 public:
  Sweep(Solve& solve, Level& level, bool final, const Visitor& visitor)
      : solve_(solve), level_(level), visitor_(visitor), final_(final) {
    // Without a C-point callback, only an interval that spans two ranks needs a message.
    receives_ = level.before() && (visitor.c_point || !level.is_c_point(level.begin()));
    sends_ = level.after() && (visitor.c_point || !level.is_c_point(level.end()));
  }

  State run() {
    if (receives_) incoming_ = solve_.boundary.post_receive(level_);
    // The value of a C-point is known before the sweep, and the next rank's interval starts from it.
    const std::int64_t last = level_.end() - 1;
    if (sends_ && level_.is_c_point(last)) solve_.boundary.send(level_, level_.u(last));
    std::int64_t stop = level_.end();
    if (solve_.evaluator.prepares_steps()) stop = run_together(stop);
    while (stop > level_.first_target()) {
      const std::int64_t first = interval_start(stop);
      run_interval(first, stop);
      solve_.boundary.progress();
      stop = first;
    }
    return std::move(left_);
  }

 private:
  struct Interval {
    std::int64_t next;  // the point that the next step leads to
    std::int64_t stop;
    State u;
  };

  // Runs the intervals whose first value this rank has, one step of each at a time. Returns the stop of the others.
  std::int64_t run_together(std::int64_t stop) {
    std::vector<Interval> intervals;
    while (stop > level_.first_target()) {
      const std::int64_t first = interval_start(stop);
      if (!level_.owns(first - 1)) break;
      intervals.push_back({first, stop, level_.u(first - 1)});
      stop = first;
    }
    std::vector<PlannedStep> planned;
    while (!intervals.empty()) {
      planned.clear();
      for (const Interval& interval : intervals) {
        if (level_.is_c_point(interval.next) && !visitor_.c_point) continue;
        planned.push_back({interval.u, solve_.hierarchy.step(level_.number(), interval.next - 1, final_)});
      }
      solve_.evaluator.prepare(planned);
      for (Interval& interval : intervals) advance(interval.next++, interval.u);
      std::erase_if(intervals, [](const Interval& interval) { return interval.next == interval.stop; });
      solve_.boundary.progress();
    }
    return stop;
  }

  // The start of the interval that ends before `stop`: the point after the last C-point below stop - 1.
  [[nodiscard]] std::int64_t interval_start(std::int64_t stop) const {
    return std::max((stop - 2) / level_.factor() * level_.factor() + 1, level_.first_target());
  }

  void run_interval(std::int64_t first, std::int64_t stop) {
    if (level_.owns(first - 1)) {
      step_through(first, stop, level_.u(first - 1));
    } else if (receives_) {
      left_ = solve_.boundary.receive(level_, *incoming_);
      step_through(first, stop, left_);
    }
  }

  // Steps through this rank's part of an interval, of which at most the last point is a C-point.
  void step_through(std::int64_t first, std::int64_t stop, State u) {
    for (std::int64_t index = first; index < stop; ++index) advance(index, u);
  }

  // Replaces the value before a point by that of the point, if it is an F-point.
  void advance(std::int64_t index, State& u) {
    if (level_.is_c_point(index)) {
      if (visitor_.c_point) visitor_.c_point(index, u);
      return;
    }
    u = solve_.evaluator.step(u, level_.rhs(index), solve_.hierarchy.step(level_.number(), index - 1, final_));
    if (sends_ && index + 1 == level_.end()) solve_.boundary.send(level_, u);
    if (visitor_.f_point) visitor_.f_point(index, u);
  }

  Solve& solve_;
  Level& level_;
  const Visitor& visitor_;
  std::unique_ptr<IncomingState> incoming_;
  State left_;
  bool final_;
  bool receives_;
  bool sends_;
};

// The change of a C-point in the final sweep is its residual after the last iteration.
void measure_change(Solve& solve, const State& before, const State& after, std::int64_t index) {
  const Place place = solve.hierarchy.place(0, index);
  const State change = solve.evaluator.combine(1, after, -1, before, place);
  solve.squared_change = accumulate(TemporalNorm::kTwo, solve.squared_change, solve.evaluator.norm(change, place));
  solve.largest_norm = accumulate(TemporalNorm::kInfinity, solve.largest_norm, solve.evaluator.norm(after, place));
}

// Calls access() for the C-points that the final sweep does not compute.
void access_remaining(Solve& solve, const Level& level) {
  for (std::int64_t index = level.begin(); index < level.end(); ++index) {
    const bool computed = index > 0 && (solve.options.final_sweep == FinalSweep::kFC || !level.is_c_point(index));
    if (!computed) solve.evaluator.access(level.u(index), solve.hierarchy.place(0, index));
  }
}

}  // namespace

State sweep(Solve& solve, Level& level, bool final, const Visitor& visitor) {
  return level.empty() ? State() : Sweep(solve, level, final, visitor).run();
}

void relax(Solve& solve, Level& level, int count) {
  const double weight = solve.options.c_weight[level.number()];
  const auto relax_c_point = [&](std::int64_t index, const State& before) {
    const int number = level.number();
    State& u = level.u(index);
    State next = solve.evaluator.step(before, level.rhs(index), solve.hierarchy.step(number, index - 1));
    u = weight == 1 ? std::move(next)
                    : solve.evaluator.combine(weight, std::move(next), 1 - weight, std::move(u),
                                              solve.hierarchy.place(number, index));
  };
  for (int i = 0; i < count; ++i) sweep(solve, level, false, {relax_c_point, nullptr});
}

void final_sweep(Solve& solve) {
  if (solve.options.final_sweep == FinalSweep::kNone) return;
  Level& level = solve.level(0);
  const bool all = solve.options.storage == Storage::kAllPoints;
  const auto keep = [&](std::int64_t index, const State& u) {
    // Any Storage keeps the last point, because it is this rank's result.
    if (all || level.is_c_point(index) || index + 1 == level.end()) level.u(index) = u;
    solve.evaluator.access(u, solve.hierarchy.place(0, index));
  };
  const auto relax_c_point = [&](std::int64_t index, const State& before) {
    const State next = solve.evaluator.step(before, level.rhs(index), solve.hierarchy.step(0, index - 1, true));
    if (solve.options.measure_last_change) measure_change(solve, level.u(index), next, index);
    keep(index, next);
  };
  Visitor visitor{nullptr, keep};
  if (solve.options.final_sweep == FinalSweep::kFC) visitor.c_point = relax_c_point;
  solve.left_value = sweep(solve, level, true, visitor);
  access_remaining(solve, level);
}

}  // namespace weft::multigrid
