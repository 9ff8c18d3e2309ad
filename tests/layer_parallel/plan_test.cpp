// Every step of every level has its layer on its rank: an own or borrowed one forward, an own one in the adjoint.
#include "weft/layer_parallel/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace weft::layer_parallel {
namespace {

struct Case {
  std::int64_t layers;
  int ranks;
  int levels;
  std::int64_t factor;
};

class PlanTest : public testing::TestWithParam<Case> {
 protected:
  const Case case_ = GetParam();
  const GridOptions grid_{case_.levels, case_.factor, 1};
  const Plan plan_{case_.layers, case_.ranks, 2.0, grid_, grid_};
};

template <class Visit>
void for_each_step_into(const multigrid::TimeHierarchy& hierarchy, int rank, Visit&& visit) {
  for (int level = 0; level < hierarchy.levels(); ++level) {
    const partition::Range points = hierarchy.points(level, rank);
    for (std::int64_t point = std::max<std::int64_t>(points.begin, 1); point < points.end; ++point) {
      visit(hierarchy.step(level, point - 1));
    }
  }
}

TEST_P(PlanTest, ForwardStepsHaveTheirLayer) {
  for (int rank = 0; rank < case_.ranks; ++rank) {
    const auto own = plan_.layers_of(rank);
    const auto borrowed = plan_.borrowed(rank);
    for_each_step_into(plan_.forward(), rank, [&](const multigrid::Step& step) {
      const bool found = own.contains(step.fine_start) ||
                         std::find(borrowed.begin(), borrowed.end(), step.fine_start) != borrowed.end();
      EXPECT_TRUE(found) << "layer " << step.fine_start << " on rank " << rank;
      EXPECT_TRUE(step.level > 0 || own.contains(step.fine_start));
    });
    for (const std::int64_t layer : borrowed) EXPECT_NE(plan_.owner(layer), rank);
  }
}

TEST_P(PlanTest, AdjointStepsUseOwnLayersOnly) {
  for (int rank = 0; rank < case_.ranks; ++rank) {
    const auto own = plan_.layers_of(rank);
    for_each_step_into(plan_.adjoint(), case_.ranks - 1 - rank, [&](const multigrid::Step& step) {
      EXPECT_TRUE(own.contains(case_.layers - step.fine_stop)) << "rank " << rank;
    });
  }
}

TEST_P(PlanTest, EveryFineStepIsTakenOnceInBothDirections) {
  std::vector<int> forward(static_cast<std::size_t>(case_.layers)), backward(forward);
  for (int rank = 0; rank < case_.ranks; ++rank) {
    for_each_step_into(plan_.forward(), rank, [&](const multigrid::Step& step) {
      if (step.level == 0) ++forward[static_cast<std::size_t>(step.fine_start)];
    });
    for_each_step_into(plan_.adjoint(), rank, [&](const multigrid::Step& step) {
      if (step.level == 0) ++backward[static_cast<std::size_t>(case_.layers - step.fine_stop)];
    });
  }
  EXPECT_EQ(forward, std::vector<int>(forward.size(), 1));
  EXPECT_EQ(backward, std::vector<int>(forward.size(), 1));
}

TEST_P(PlanTest, FirstAndLastRankOwnInputAndOutput) {
  EXPECT_EQ(plan_.forward().owner(0, 0), 0);
  EXPECT_EQ(plan_.forward().owner(0, case_.layers), plan_.last_rank());
  EXPECT_EQ(plan_.adjoint().owner(0, 0), case_.ranks - 1 - plan_.last_rank());
  EXPECT_EQ(plan_.adjoint().owner(0, case_.layers), case_.ranks - 1);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::int64_t layers : {1, 2, 3, 7, 16, 29}) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      for (const int levels : {1, 2, 4}) {
        for (const std::int64_t factor : {2, 4}) all.push_back({layers, ranks, levels, factor});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Many, PlanTest, testing::ValuesIn(cases()), [](const auto& info) {
  const Case& c = info.param;
  return "layers" + std::to_string(c.layers) + "ranks" + std::to_string(c.ranks) + "levels" + std::to_string(c.levels) +
         "factor" + std::to_string(c.factor);
});

TEST(Plan, RequiresLayers) { EXPECT_THROW(Plan(0, 2, 1.0, {}, {}), std::invalid_argument); }

TEST(Plan, RequiresAFiniteTime) {
  for (const double tf : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(Plan(4, 2, tf, {}, {}), std::invalid_argument);
  }
}

TEST(Plan, StepSizesGrowWithTheLevel) {
  const Plan plan(8, 2, 2.0, {}, {});
  EXPECT_DOUBLE_EQ(plan.dt(), 0.25);
  EXPECT_DOUBLE_EQ(plan.dt(4), 1.0);
}

}  // namespace
}  // namespace weft::layer_parallel
