// The solver over MPI: messages of all sizes, failures and recovery, late ranks, and reverse rank order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "tests/mpi/scoped_options.h"
#include "tests/multigrid/bomb.h"
#include "tests/multigrid/model.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/error.h"
#include "weft/multigrid/solver.h"

namespace weft::multigrid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kSteps = 26;

class OverMpi : public testing::Test {
 protected:
  [[nodiscard]] static HierarchyOptions grids() {
    HierarchyOptions grids;
    grids.max_levels = 3;
    grids.coarsening = 3;
    return grids;
  }
  [[nodiscard]] Solver solver(std::int64_t steps = kSteps) const {
    return {TimeHierarchy(steps, communicator_->size(), grids()), communicator_};
  }
  [[nodiscard]] static Options usual() {
    Options options;
    options.max_iterations = 2;
    options.absolute_tolerance = 0;
    options.relaxations = 1;
    return options;
  }
  // The value at the last point, on all ranks.
  [[nodiscard]] Vector end_of(const Solver& solver, std::size_t size, const Communicator& communicator) const {
    const std::int64_t last = solver.hierarchy().steps();
    Vector end(size);
    if (solver.points().contains(last)) end = solver.solution(last).as<Vector>();
    mpi::broadcast(end.data(), static_cast<std::int64_t>(size), mpi::Datatype::kFloat64,
                   solver.hierarchy().owner(0, last), communicator.origin());
    return end;
  }
  // The same solve on one rank; every rank does it alone.
  [[nodiscard]] static Vector alone(const Model& model, const Options& options, std::int64_t steps = kSteps) {
    Solver solver(TimeHierarchy(steps, 1, grids()), Communicator::over(mpi::CommView(MPI_COMM_SELF), "alone"));
    ModelProblem problem(model);
    solver.solve(problem, options);
    return solver.solution(steps).as<Vector>();
  }
  void expect_works(Solver& solver) const {
    const Model model = diffusion();
    ModelProblem problem(model);
    solver.solve(problem, usual());
    EXPECT_EQ(end_of(solver, 8, *communicator_), alone(model, usual()));
    EXPECT_EQ(mpi::Request::abandoned_count(), abandoned_before_) << "unfinished requests";
  }

  const std::size_t abandoned_before_ = mpi::Request::abandoned_count();  // from earlier tests
  const mpi::CommView world_ = mpi::CommView::world();
  const std::shared_ptr<Communicator> communicator_ = Communicator::over(world_, "multigrid");
};

// u + h sin(k + i) on vectors of any size.
Model wide(std::size_t size) {
  Model model;
  model.initial = Vector(size, 0.25);
  model.size = [size](int, std::int64_t) { return size; };
  model.step = [](const Vector& u, const Step& step) {
    Vector next(u);
    for (std::size_t i = 0; i < u.size(); ++i) {
      next[i] +=
          (step.t_stop - step.t_start) * std::sin(static_cast<double>(step.fine_start) + static_cast<double>(i) - u[i]);
    }
    return next;
  };
  return model;
}

TEST_F(OverMpi, SendsMessagesOfAllSizesWithAndWithoutKnownSize) {
  for (const std::size_t size : {0, 1, 100, 3000, 20'000}) {
    const Model model = wide(size);
    const Vector expected = alone(model, usual());
    for (const bool announces : {true, false}) {
      Solver solver = this->solver();
      ModelProblem problem(model, announces);
      solver.solve(problem, usual());
      EXPECT_EQ(end_of(solver, size, *communicator_), expected) << size << " numbers";
    }
  }
}

TEST_F(OverMpi, SplitsMessagesAboveTheLargestCount) {
  const Vector expected = alone(wide(9), usual());
  const mpi::ScopedOptions small([](mpi::Options& options) { options.max_count = 7; });
  const Model model = wide(9);
  Solver solver = this->solver();
  ModelProblem problem(model);
  solver.solve(problem, usual());
  EXPECT_EQ(end_of(solver, 9, *communicator_), expected);
}

TEST_F(OverMpi, SupportsShapesThatChangeBetweenSteps) {
  const Model model = shape_shifter();
  for (const bool announces : {true, false}) {
    Solver solver = this->solver();
    ModelProblem problem(model, announces);
    solver.solve(problem, usual());
    EXPECT_EQ(end_of(solver, model.size(0, kSteps), *communicator_), alone(model, usual()));
  }
}

TEST_F(OverMpi, SupportsReverseRankOrder) {
  const auto reversed = Communicator::adopt(world_.split(0, world_.size() - 1 - world_.rank()));
  const Model model = diffusion();
  HierarchyOptions options = grids();
  // An unbalanced split, with ranks that have no points.
  options.offsets = {0};
  for (int rank = 1; rank < world_.size(); ++rank) options.offsets.push_back(rank % 2 == 0 ? 20 : 7);
  std::sort(options.offsets.begin(), options.offsets.end());
  options.offsets.push_back(kSteps + 1);
  Solver solver(TimeHierarchy(kSteps, world_.size(), options), reversed);
  ModelProblem problem(model);
  solver.solve(problem, usual());
  EXPECT_EQ(end_of(solver, 8, *reversed), alone(model, usual()));
}

TEST_F(OverMpi, CountsMessages) {
  Solver solver = this->solver();
  const Model model = diffusion();
  ModelProblem problem(model);
  const Statistics statistics = solver.solve(problem, usual());
  const bool sends = solver.hierarchy().after(0, world_.rank()).has_value();
  EXPECT_EQ(statistics.messages_sent > 0, sends);
  EXPECT_EQ(statistics.bytes_sent > 0, sends);
  EXPECT_GE(statistics.seconds_waiting, 0);
}

TEST_F(OverMpi, AFailureThrowsOnAllRanksAndTheNextSolveWorks) {
  const Model model = diffusion();
  Solver solver = this->solver();
  for (int rank = 0; rank < world_.size(); ++rank) {
    for (const std::string& target : BombProblem::targets()) {
      for (const int call : {1, 4, 9}) {
        SCOPED_TRACE("rank " + std::to_string(rank) + ", " + target + " " + std::to_string(call));
        BombProblem problem(model, call != 4);
        if (world_.rank() == rank) problem.target = target;
        problem.call = call;
        int told = 0;
        try {
          solver.solve(problem, usual());
        } catch (const SolveError& error) {
          EXPECT_EQ(error.rank(), rank);
          EXPECT_THAT(error.what(), HasSubstr("boom in " + target));
          EXPECT_EQ(error.nested_ptr() != nullptr, world_.rank() == rank);
          told = 1;
        }
        mpi::all_reduce(&told, &told, 1, mpi::Datatype::kInt32, mpi::ReduceOp::kSum, world_);
        EXPECT_TRUE(told == 0 || told == world_.size());
      }
    }
    expect_works(solver);
  }
}

// A failure notice is a message of a different size than announced. It must be distinguishable from an empty state.
TEST_F(OverMpi, DistinguishesFailureNoticesFromEmptyStates) {
  std::vector<int> steps;
  for (const std::size_t size : {1, 0}) {
    const Model model = wide(size);
    Solver solver = this->solver();
    BombProblem problem(model);
    if (world_.rank() == 0) problem.target = "initial";
    EXPECT_THROW(solver.solve(problem, usual()), SolveError);
    steps.push_back(problem.calls["step"]);
  }
  EXPECT_EQ(steps[0], steps[1]) << "steps taken before the notice arrived";
}

TEST_F(OverMpi, ARankThatLeavesEarlyInterruptsTheOthers) {
  if (world_.size() == 1) GTEST_SKIP() << "needs another rank";
  class Leaves : public ModelProblem {
   public:
    using ModelProblem::ModelProblem;
    std::optional<std::int64_t> packed_bytes(const Place& place) override {
      if (leaves && ++calls >= 5) throw std::runtime_error("left early");
      return ModelProblem::packed_bytes(place);
    }
    bool leaves = false;
    int calls = 0;
  };
  const Model model = diffusion();
  Solver solver = this->solver();
  Leaves problem(model);
  problem.leaves = world_.rank() == 0;
  try {
    solver.solve(problem, usual());
    ADD_FAILURE() << "the solve must fail";
  } catch (const mpi::PeerLost& error) {
    EXPECT_NE(world_.rank(), 0);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0"), HasSubstr("left early")));
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(world_.rank(), 0);
    EXPECT_STREQ(error.what(), "left early");
  }
  world_.barrier();
  // The next solve rebuilds the channels and ignores messages of the failed one.
  ModelProblem again(model);
  solver.solve(again, usual());
  EXPECT_EQ(end_of(solver, 8, *communicator_), alone(model, usual()));
}

TEST_F(OverMpi, ASlowRankCausesATimeout) {
  if (world_.size() == 1) GTEST_SKIP() << "needs another rank";
  const Model model = diffusion();
  Solver solver = this->solver();
  Model slow = model;
  slow.step = [&](const Vector& u, const Step& step) {
    if (world_.rank() == 0 && step.final && step.index == 3) std::this_thread::sleep_for(std::chrono::seconds(1));
    return model.step(u, step);
  };
  {
    const mpi::ScopedOptions hurry([&](mpi::Options& options) {
      if (world_.rank() != 0) options.timeout = std::chrono::milliseconds(300);
    });
    ModelProblem problem(slow);
    EXPECT_ANY_THROW(solver.solve(problem, usual()));
  }
  world_.barrier();
  ModelProblem again(model);
  solver.solve(again, usual());
  EXPECT_EQ(end_of(solver, 8, *communicator_), alone(model, usual()));
}

TEST_F(OverMpi, RejectsDifferentOptionsOnAllRanks) {
  if (world_.size() == 1) GTEST_SKIP() << "needs another rank";
  const Model model = diffusion();
  Solver solver = this->solver();
  ModelProblem problem(model);
  Options options = usual();
  if (world_.rank() == 1) options.relaxations = 2;
  EXPECT_THROW(solver.solve(problem, options), mpi::Disagreement);
  if (world_.rank() == 1) options.relaxations = -1;
  try {
    solver.solve(problem, options);
    ADD_FAILURE() << "different options were accepted";
  } catch (const mpi::Disagreement& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1: multigrid: relaxations must be at least 0"));
  }
  expect_works(solver);
}

TEST_F(OverMpi, RejectsInvalidOptionsOnASingleRank) {
  Solver solver(TimeHierarchy(4, 1), Communicator::over(mpi::CommView(MPI_COMM_SELF), "alone"));
  const Model model = diffusion();
  ModelProblem problem(model);
  Options options;
  options.max_iterations = -1;
  EXPECT_THROW(solver.solve(problem, options), std::invalid_argument);
}

TEST_F(OverMpi, DebugChecksThatStatesAreFinite) {
  Model model = diffusion();
  model.step = [inner = model.step](const Vector& u, const Step& step) {
    return step.level == 1 && step.index == 3 ? Vector(4, NAN) : inner(u, step);
  };
  Solver solver = this->solver();
  {
    const mpi::ScopedOptions debug([](mpi::Options& options) { options.debug = true; });
    ModelProblem problem(model);
    try {
      solver.solve(problem, usual());
      ADD_FAILURE() << "the solve must fail";
    } catch (const SolveError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("not finite"), HasSubstr("level 1"), HasSubstr("step 3")));
      EXPECT_EQ(error.rank(), solver.hierarchy().owner(1, 4));
    }
  }
  for (const auto norm : {TemporalNorm::kOne, TemporalNorm::kTwo, TemporalNorm::kInfinity}) {
    ModelProblem unchecked(model);
    Options options = usual();
    options.temporal_norm = norm;
    const Statistics statistics = solver.solve(unchecked, options);
    ASSERT_EQ(statistics.residuals.size(), 2U);  // the first residual precedes the coarse level
    EXPECT_FALSE(std::isnan(statistics.residuals[0].value()));
    EXPECT_TRUE(std::isnan(statistics.residuals[1].value()));
  }
  expect_works(solver);
}

}  // namespace
}  // namespace weft::multigrid
