// StepCache: the last evaluation of each coarse step, for problems whose steps are expensive.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "weft/multigrid/problem/problem.h"

namespace weft::multigrid {

// The residual of a coarse point and the following relaxation need the same step, and so does an iteration after one
// that skipped the downward sweep.
class StepCache {
 public:
  // Returns evaluate(), or the result of the same step from the same state.
  template <class Evaluate>
  [[nodiscard]] State step(const State& u, const Step& step, Evaluate&& evaluate) {
    if (step.final) steps_.clear();  // the coarse levels are done
    if (step.level == 0) return evaluate();
    auto& [from, to] = steps_[{step.level, step.index}];
    if (!from || from.shared() != u.shared()) {
      to = evaluate();
      from = u;
    }
    return to;
  }

 private:
  struct Evaluated {
    State from, to;
  };
  std::map<std::pair<int, std::int64_t>, Evaluated> steps_;  // by level and index
};

}  // namespace weft::multigrid
