#include "weft/multigrid/interpolate.h"

#include <utility>

#include "weft/multigrid/relax.h"

namespace weft::multigrid {

void correct_finer(Solve& solve, Level& coarse, std::int64_t index, const State& u) {
  Level& fine = solve.level(coarse.number() - 1);
  const Place place = solve.hierarchy.place(coarse.number(), index);
  const Place fine_place = solve.hierarchy.place(fine.number(), index * fine.factor());
  State& v = coarse.v(index);
  const State change = v ? solve.evaluator.combine(1, u, -1, std::move(v), place) : u;
  v.reset();
  State correction = solve.evaluator.refine(change, place);
  State& target = fine.u(fine_place.index);
  target = target ? solve.evaluator.combine(1, std::move(target), 1, std::move(correction), fine_place)
                  : std::move(correction);
}

void interpolate_to_finer(Solve& solve, int number) {
  Level& coarse = solve.level(number);
  const auto correct = [&](std::int64_t index, const State& u) { correct_finer(solve, coarse, index, u); };
  sweep(solve, coarse, false, {nullptr, correct});
  for (std::int64_t index = coarse.begin(); index < coarse.end(); ++index) {
    if (index > 0 && coarse.is_c_point(index)) correct(index, coarse.u(index));
  }
}

}  // namespace weft::multigrid
