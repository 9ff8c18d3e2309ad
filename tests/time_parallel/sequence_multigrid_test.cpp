// SequenceMultigrid: a linear recurrence and its adjoint against a loop, for any split of the steps.
#include "weft/time_parallel/sequence_multigrid.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "weft/mpi/comm.h"
#include "weft/mpi/communicator.h"

namespace weft::time_parallel {
namespace {

using at::Tensor;

// The steps of each rank: uneven, and none on rank 1.
std::vector<std::int64_t> pieces(int ranks) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), 9);
  counts[0] = 14;
  if (ranks > 1) counts[1] = 0;
  return counts;
}

// s[t + 1] = factor[t] s[t] + 1, or its adjoint s[t] = factor[t] s[t + 1] + 1. A coarse step multiplies the factors of
// all its steps, so that multigrid converges at once to rounding.
class Recurrence : public testing::TestWithParam<TimeOrder> {
 protected:
  Recurrence() {
    steps_ = pieces(world_.size());
    const std::int64_t total = std::accumulate(steps_.begin(), steps_.end(), std::int64_t{0});
    factors_.resize(static_cast<std::size_t>(total));
    for (std::size_t t = 0; t < factors_.size(); ++t) factors_[t] = 0.3 + 0.05 * static_cast<double>(t % 7);
    begin_ = std::accumulate(steps_.begin(), steps_.begin() + world_.rank(), std::int64_t{0});
    end_ = begin_ + steps_[static_cast<std::size_t>(world_.rank())];
  }

  // The states after (adjoint: before) each step.
  [[nodiscard]] std::vector<double> expected(double initial) const {
    std::vector<double> states(factors_.size());
    double s = initial;
    for (std::size_t i = 0; i < factors_.size(); ++i) {
      const std::size_t t = GetParam() == TimeOrder::kForward ? i : factors_.size() - 1 - i;
      states[t] = s = factors_[t] * s + 1;
    }
    return states;
  }

  const mpi::CommView world_{MPI_COMM_WORLD};
  std::vector<std::int64_t> steps_;
  std::vector<double> factors_;
  std::int64_t begin_ = 0;
  std::int64_t end_ = 0;
};

TEST_P(Recurrence, TakesEachFinalStepOnceAndJoinsIndependentSteps) {
  // Ranks in the order of the solve's time.
  const int rank = GetParam() == TimeOrder::kForward ? world_.rank() : world_.size() - 1 - world_.rank();
  const auto ordered = Communicator::adopt(world_.split(0, rank));
  multigrid::HierarchyOptions grid;
  grid.max_levels = 2;
  grid.coarsening = 3;
  SequenceMultigrid solver(ordered, steps_, grid, GetParam());
  multigrid::Options options;
  options.max_iterations = 40;
  options.absolute_tolerance = 1e-14;
  options.relaxations = 1;

  std::map<std::int64_t, double> finals;
  std::size_t together = 0;
  const auto step = [&](const Tensor& states, const SequenceMultigrid::Steps& taken) {
    together = std::max(together, taken.first.size());
    Tensor next = states.clone();
    for (std::size_t k = 0; k < taken.first.size(); ++k) {
      const Tensor state = next[static_cast<std::int64_t>(k)];
      for (std::int64_t i = 0; i < taken.count; ++i) {
        const std::int64_t t =
            GetParam() == TimeOrder::kForward ? taken.first[k] + i : taken.first[k] + taken.count - 1 - i;
        state.mul_(factors_[static_cast<std::size_t>(t)]).add_(1);
      }
      if (!taken.final) continue;
      EXPECT_EQ(taken.count, 1);
      EXPECT_TRUE(finals.emplace(taken.first[k], state[0].item<double>()).second) << "step " << taken.first[k];
    }
    return next;
  };
  const Tensor initial = at::ones({1}, at::kDouble) * 0.7;
  const auto statistics = solver.solve(initial, step, options);
  EXPECT_TRUE(statistics.converged);
  ASSERT_EQ(static_cast<std::int64_t>(finals.size()), end_ - begin_);
  const std::vector<double> states = expected(0.7);
  for (const auto& [t, value] : finals) {
    EXPECT_GE(t, begin_);
    EXPECT_LT(t, end_);
    EXPECT_NEAR(value, states[static_cast<std::size_t>(t)], 1e-12) << "step " << t;
  }
  if (end_ > begin_) {
    EXPECT_GE(together, 2U);
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, Recurrence, testing::Values(TimeOrder::kForward, TimeOrder::kAdjoint));

}  // namespace
}  // namespace weft::time_parallel
