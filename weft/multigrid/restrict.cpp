#include "weft/multigrid/restrict.h"

#include <memory>
#include <utility>
#include <vector>

#include "weft/multigrid/relax.h"
#include "weft/multigrid/residual.h"

namespace weft::multigrid {
namespace {

// Copies the fine C-points to the coarse level. The owner of a C-point owns the coarse point, so this needs no message.
void inject(Solve& solve, Level& fine, Level& coarse) {
  for (std::int64_t index = coarse.begin(); index < coarse.end(); ++index) {
    const Place place = solve.hierarchy.place(fine.number(), index * fine.factor());
    State u = solve.evaluator.coarsen(fine.u(place.index), place);
    coarse.rhs(index).reset();
    // F-points of the coarse level are computed before they are read.
    coarse.u(index) = coarse.is_c_point(index) ? u : State();
    coarse.v(index) = std::move(u);
  }
}

// Provides v at the point before this rank's first coarse point. If that C-point directly precedes the rank's first
// fine point, the fine sweep receives it; otherwise it needs a separate message. Both ranks come to the same
// conclusion.
class CoarseBorder {
 public:
  CoarseBorder(Solve& solve, const Level& fine, const Level& coarse) : solve_(solve), fine_(fine), coarse_(coarse) {
    const bool comes_with_sweep = fine.is_c_point(fine.begin() - 1) && coarse.before() == fine.before();
    const bool goes_with_sweep = fine.is_c_point(fine.end() - 1) && coarse.after() == fine.after();
    receives_ = coarse.before() && !comes_with_sweep;
    sends_ = coarse.after() && !goes_with_sweep;
  }

  // The C-points are known before the sweep, so the exchange overlaps with it.
  void exchange(const State& last_v) {
    if (receives_) incoming_ = solve_.boundary.post_receive(coarse_);
    if (sends_) solve_.boundary.send(coarse_, last_v);
  }
  // Returns the coarse value before this rank's first point. `left` is the fine value that the sweep received.
  [[nodiscard]] State v_before(const State& left) {
    if (receives_) return solve_.boundary.receive(coarse_, *incoming_);
    return solve_.evaluator.coarsen(left, solve_.hierarchy.place(fine_.number(), fine_.begin() - 1));
  }

 private:
  Solve& solve_;
  const Level& fine_;
  const Level& coarse_;
  std::unique_ptr<IncomingState> incoming_;
  bool receives_;
  bool sends_;
};

struct Residuals {
  double norm_part = 0;
  State left;  // the value that the sweep received from the rank before
};

// F-relaxes the fine level and stores the residuals of its C-points in the coarse right-hand sides.
Residuals take_residuals(Solve& solve, Level& fine, Level& coarse, bool with_norm) {
  double sum = 0;
  const auto at_c_point = [&](std::int64_t index, const State& before) {
    const Place place = solve.hierarchy.place(fine.number(), index);
    const Step step = solve.hierarchy.step(fine.number(), index - 1);
    const State missing = solve.evaluator.residual(before, fine.u(index), fine.rhs(index), step);
    if (with_norm) sum = accumulate(solve.options.temporal_norm, sum, solve.evaluator.norm(missing, place));
    coarse.rhs(index / fine.factor()) = solve.evaluator.coarsen(missing, place);
  };
  State left = sweep(solve, fine, false, {at_c_point, nullptr});
  return {sum, std::move(left)};
}

// Subtracts the coarse residual of v. Handles the first point last: it needs the value from the rank before.
void subtract_coarse_residuals(Solve& solve, Level& coarse, CoarseBorder& border, const State& left) {
  const auto step_to = [&](std::int64_t index) { return solve.hierarchy.step(coarse.number(), index - 1); };
  if (solve.evaluator.prepares_steps()) {
    std::vector<PlannedStep> planned;
    for (std::int64_t index = coarse.first_target(); index < coarse.end(); ++index) {
      if (coarse.owns(index - 1)) planned.push_back({coarse.v(index - 1), step_to(index)});
    }
    solve.evaluator.prepare(planned);
  }
  for (std::int64_t index = coarse.end() - 1; index >= coarse.first_target(); --index) {
    const State before = coarse.owns(index - 1) ? coarse.v(index - 1) : border.v_before(left);
    const State missing = solve.evaluator.residual(before, coarse.v(index), State(), step_to(index));
    State& rhs = coarse.rhs(index);
    rhs = solve.evaluator.combine(1, std::move(rhs), -1, missing, solve.hierarchy.place(coarse.number(), index));
  }
}

}  // namespace

double restrict_to_coarser(Solve& solve, int number, bool with_norm) {
  Level& fine = solve.level(number);
  Level& coarse = solve.level(number + 1);
  inject(solve, fine, coarse);
  CoarseBorder border(solve, fine, coarse);
  border.exchange(coarse.empty() ? State() : coarse.v(coarse.end() - 1));
  const Residuals residuals = take_residuals(solve, fine, coarse, with_norm);
  subtract_coarse_residuals(solve, coarse, border, residuals.left);
  return residuals.norm_part;
}

void inject_to_coarsest(Solve& solve) {
  for (int number = 0; number < solve.hierarchy.coarsest(); ++number) {
    inject(solve, solve.level(number), solve.level(number + 1));
  }
}

}  // namespace weft::multigrid
