#include "weft/multigrid/coarsest.h"

#include <memory>
#include <utility>

#include "weft/multigrid/interpolate.h"
#include "weft/multigrid/relax.h"

namespace weft::multigrid {
namespace {

// Steps through this rank's points, calls visit(index, u) at each and sends the last value to the next rank. Returns
// the value received from the rank before.
template <class Visit>
State march(Solve& solve, Level& level, bool final, Visit&& visit) {
  if (level.empty()) return {};
  State left;
  if (level.before()) left = solve.boundary.receive(level, *solve.boundary.post_receive(level));
  State u = level.before() ? left : level.u(0);
  for (std::int64_t index = level.first_target(); index < level.end(); ++index) {
    u = solve.evaluator.step(u, level.rhs(index), solve.hierarchy.step(level.number(), index - 1, final));
    level.rhs(index).reset();  // no longer needed; the next step may reuse its memory
    visit(index, u);
  }
  if (level.after()) solve.boundary.send(level, u);
  return left;
}

}  // namespace

void solve_coarsest(Solve& solve) {
  Level& level = solve.level(solve.hierarchy.coarsest());
  if (solve.options.relax_coarsest_only) {
    relax(solve, level, solve.options.relaxations[level.number()]);
    interpolate_to_finer(solve, level.number());
    return;
  }
  // Later ranks wait for this one, so it sends its value before it computes corrections.
  march(solve, level, false, [&](std::int64_t index, const State& u) { level.u(index) = u; });
  for (std::int64_t index = level.first_target(); index < level.end(); ++index) {
    correct_finer(solve, level, index, std::exchange(level.u(index), State()));
  }
}

void solve_serially(Solve& solve) {
  Level& level = solve.level(0);
  const bool all = solve.options.storage == Storage::kAllPoints;
  const auto keep = [&](std::int64_t index, const State& u) {
    if (all || level.is_c_point(index) || index + 1 == level.end()) level.u(index) = u;
    solve.evaluator.access(u, solve.hierarchy.place(0, index));
  };
  if (level.owns(0)) keep(0, level.u(0));
  solve.left_value = march(solve, level, true, keep);
}

}  // namespace weft::multigrid
