// Compares residual histories, step counts and outputs with XBraid, on any number of ranks.
#include "tests/multigrid/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>

#include "tests/multigrid/tanh_network.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/communicator.h"
#include "weft/multigrid/solver.h"

namespace weft::multigrid {
namespace {

// Residuals below this are rounding errors, which depend on the order of additions.
constexpr double kRoundOff = 1e-15;

std::string printed(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.7g", value);
  return text;
}

class Golden : public testing::TestWithParam<GoldenCase> {
 protected:
  [[nodiscard]] TimeHierarchy hierarchy() const {
    HierarchyOptions options;
    options.max_levels = GetParam().levels;
    options.coarsening = GetParam().cfactor;
    options.t_end = static_cast<double>(GetParam().steps) / 16;
    return {GetParam().steps, communicator_->size(), options};
  }
  [[nodiscard]] static Options options() {
    const GoldenCase& golden = GetParam();
    Options options;
    options.max_iterations = golden.iterations;
    options.absolute_tolerance = 0;
    options.relaxations = PerLevel<int>(golden.relax_coarse).set(0, golden.relax_fine);
    options.cycle = golden.fmg ? CycleKind::kF : CycleKind::kV;
    options.skip_downcycle = golden.skip;
    return options;
  }
  static void expect_residuals(const Statistics& statistics) {
    const GoldenCase& golden = GetParam();
    ASSERT_EQ(statistics.residuals.size(), golden.residuals.size());
    for (std::size_t i = 0; i < golden.residuals.size(); ++i) {
      const auto& residual = statistics.residuals[i];
      if (golden.residuals[i] == "null") {
        EXPECT_FALSE(residual.has_value());
      } else if (std::stod(golden.residuals[i]) < kRoundOff) {
        EXPECT_LT(residual.value(), kRoundOff);
      } else {
        EXPECT_EQ(printed(residual.value()), printed(std::stod(golden.residuals[i]))) << "iteration " << i;
      }
    }
  }
  void expect_output(const Solver& solver) const {
    const GoldenCase& golden = GetParam();
    if (!solver.points().contains(golden.steps)) return;
    const auto& output = solver.solution(golden.steps).as<std::vector<double>>();
    ASSERT_EQ(output.size(), golden.output.size());
    for (std::size_t i = 0; i < output.size(); ++i) EXPECT_NEAR(output[i], golden.output[i], 1e-12);
  }
  void expect_step_count(const Statistics& statistics) const {
    std::int64_t steps = statistics.total_steps();
    mpi::all_reduce(&steps, &steps, 1, mpi::Datatype::kInt64, mpi::ReduceOp::kSum, mpi::CommView::world());
    EXPECT_EQ(steps, GetParam().step_evaluations);
  }

  const std::shared_ptr<Communicator> communicator_ = Communicator::over(mpi::CommView::world(), "golden");
};

TEST_P(Golden, ReproducesXBraid) {
  Solver solver(hierarchy(), communicator_);
  for (const Storage storage : {Storage::kAllPoints, Storage::kCPoints}) {
    for (const bool announce : {true, false}) {
      TanhNetwork network;
      network.announce = announce;
      Options options = Golden::options();
      options.storage = storage;
      const Statistics statistics = solver.solve(network, options);
      EXPECT_EQ(statistics.iterations, GetParam().iterations);
      expect_residuals(statistics);
      expect_output(solver);
      expect_step_count(statistics);
    }
  }
}

std::string name_of(const testing::TestParamInfo<GoldenCase>& info) {
  const GoldenCase& golden = info.param;
  return "case" + std::to_string(info.index) + "_" + std::to_string(golden.steps) + "steps_" +
         std::to_string(golden.levels) + "levels";
}

INSTANTIATE_TEST_SUITE_P(XBraid, Golden, testing::ValuesIn(golden_cases(WEFT_GOLDEN_FILE)), name_of);

TEST(GoldenFile, HasNineCases) { EXPECT_EQ(golden_cases(WEFT_GOLDEN_FILE).size(), 9U); }

}  // namespace
}  // namespace weft::multigrid
