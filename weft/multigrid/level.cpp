#include "weft/multigrid/level.h"

#include <algorithm>

namespace weft::multigrid {

Level::Level(const TimeHierarchy& hierarchy, int number, int rank)
    : number_(number),
      factor_(hierarchy.factor(number)),
      points_(hierarchy.points(number, rank)),
      before_(hierarchy.before(number, rank)),
      after_(hierarchy.after(number, rank)),
      u_(static_cast<std::size_t>(points_.size())),
      v_(u_.size()),
      rhs_(u_.size()) {}

void Level::clear() noexcept {
  for (auto* states : {&u_, &v_, &rhs_}) std::fill(states->begin(), states->end(), State());
}

void Level::clear_f_points() noexcept {
  for (std::int64_t index = begin(); index < end(); ++index) {
    if (!is_c_point(index)) u(index).reset();
  }
}

}  // namespace weft::multigrid
