// A failure in any function: all ranks throw the same error, no message is left over, and the next solve works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <set>

#include "tests/multigrid/bomb.h"
#include "tests/multigrid/thread_transport.h"
#include "weft/multigrid/solver.h"

namespace weft::multigrid {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 4;
constexpr std::int64_t kSteps = 26;

TimeHierarchy hierarchy(int ranks = kRanks) {
  HierarchyOptions grids;
  grids.max_levels = 3;
  grids.coarsening = 3;
  return {kSteps, ranks, grids};
}

Options usual() {
  Options options;
  options.max_iterations = 2;
  options.absolute_tolerance = 0;
  options.relaxations = 1;
  return options;
}

Vector good_solution(const Options& options) {
  const Model model = diffusion();
  Vector end;
  run_on_threads(1, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(hierarchy(1), transport);
    ModelProblem problem(model);
    solver.solve(problem, options);
    end = solver.solution(kSteps).as<Vector>();
  });
  return end;
}

// The error text of each rank; empty if the solve succeeded.
struct Told {
  std::vector<std::string> texts = std::vector<std::string>(kRanks);
  std::vector<bool> nested = std::vector<bool>(kRanks);
  std::vector<Fault> faults = std::vector<Fault>(kRanks);
};

bool holds_bomb(const std::exception_ptr& nested) {
  if (nested == nullptr) return false;
  try {
    std::rethrow_exception(nested);
  } catch (const BombError&) {
    return true;
  } catch (...) {
    return false;
  }
}

// Runs a solve with a bomb on `rank`, then one without it on the same solver, which must give `good`.
Told fail_and_recover(const Options& options, int rank, const std::string& target, int call, const Vector& good) {
  const Model model = diffusion();
  Told told;
  std::mutex mutex;
  run_on_threads(kRanks, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(hierarchy(), transport);
    BombProblem problem(model);
    const auto me = static_cast<std::size_t>(transport->rank());
    if (transport->rank() == rank) problem.target = target;
    problem.call = call;
    try {
      solver.solve(problem, options);
    } catch (const SolveError& error) {
      EXPECT_THROW(static_cast<void>(solver.solution(solver.points().begin)), std::out_of_range);
      const std::lock_guard lock(mutex);
      told.texts[me] = error.what();
      told.nested[me] = holds_bomb(error.nested_ptr());
      told.faults[me] = error.fault();
    }
    ModelProblem again(model);
    solver.solve(again, options);
    if (solver.points().contains(kSteps)) {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(solver.solution(kSteps).as<Vector>(), good);
    }
  });
  return told;
}

// Returns true if the bomb went off.
bool expect_told(const Told& told, int rank) {
  const std::set<std::string> texts(told.texts.begin(), told.texts.end());
  EXPECT_EQ(texts.size(), 1U) << "the ranks threw different errors";
  if (told.texts[0].empty()) return false;
  EXPECT_THAT(told.texts[0],
              AllOf(HasSubstr("rank " + std::to_string(rank)), HasSubstr("boom in"), HasSubstr("level ")));
  for (int other = 0; other < kRanks; ++other) {
    EXPECT_EQ(told.nested[static_cast<std::size_t>(other)], other == rank);
    EXPECT_EQ(told.faults[static_cast<std::size_t>(other)].rank, rank);
  }
  return true;
}

class AnyFunction : public testing::TestWithParam<std::string> {};

TEST_P(AnyFunction, FailingOnOneRankThrowsOnAll) {
  for (const bool residual : {true, false}) {
    Options options = usual();
    options.compute_residual = residual;
    if (!residual && GetParam() == "norm") continue;
    const Vector good = good_solution(options);
    int exploded = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const int call : {1, 2, 3, 5, 8, 12, 17, 23, 30, 41, 57}) {
        SCOPED_TRACE("rank " + std::to_string(rank) + ", call " + std::to_string(call));
        exploded += expect_told(fail_and_recover(options, rank, GetParam(), call, good), rank) ? 1 : 0;
        if (HasFailure()) return;
      }
    }
    EXPECT_GE(exploded, GetParam() == "initial" ? 1 : 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, AnyFunction, testing::ValuesIn(BombProblem::targets()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

TEST(Failure, NamesLevelStepAndCause) {
  Model model = diffusion();
  model.step = [inner = model.step](const Vector& u, const Step& step) -> Vector {
    if (step.level == 1 && step.index == 5) throw BombError("the bridge is out");
    return inner(u, step);
  };
  run_on_threads(kRanks, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(hierarchy(), transport);
    ModelProblem problem(model);
    const int owner = solver.hierarchy().owner(1, 6);
    try {
      solver.solve(problem, usual());
      ADD_FAILURE() << "the solve must fail";
    } catch (const SolveError& error) {
      EXPECT_EQ(error.fault().level, 1);
      EXPECT_EQ(error.fault().index, 5);
      EXPECT_EQ(error.rank(), owner);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank " + std::to_string(owner)), HasSubstr("level 1"),
                                      HasSubstr("step 5"), HasSubstr("the bridge is out")));
    }
  });
}

TEST(Failure, OfSeveralRanksNamesTheFirstAndTheOthers) {
  Model model = diffusion();
  model.step = [](const Vector&, const Step&) -> Vector { throw 42; };
  std::mutex mutex;
  std::set<std::string> texts;
  run_on_threads(kRanks, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(hierarchy(), transport);
    ModelProblem problem(model);
    try {
      solver.solve(problem, usual());
    } catch (const SolveError& error) {
      const std::lock_guard lock(mutex);
      texts.insert(error.what());
      EXPECT_TRUE(error.nested_ptr());
    }
  });
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_THAT(*texts.begin(), AllOf(HasSubstr("rank 0"), HasSubstr("unknown type"), HasSubstr("also failed: rank 1")));
}

TEST(Failure, InASerialSolveThrowsOnAllRanks) {
  Model model = pendulum();
  model.step = [inner = model.step](const Vector& u, const Step& step) -> Vector {
    if (step.index == 13) throw BombError("no further");
    return inner(u, step);
  };
  HierarchyOptions grids;
  grids.max_levels = 1;
  for (const int ranks : {1, 2, 5}) {
    std::atomic<int> told = 0;
    run_on_threads(ranks, [&](const std::shared_ptr<Transport>& transport) {
      Solver solver(TimeHierarchy(20, ranks, grids), transport);
      ModelProblem problem(model);
      try {
        solver.solve(problem);
      } catch (const SolveError& error) {
        EXPECT_THAT(error.what(), HasSubstr("level 0, step 13: no further"));
        ++told;
      }
    });
    EXPECT_EQ(told, ranks);
  }
}

TEST(Failure, AnEmptyStateIsAnError) {
  class Empty : public ModelProblem {
   public:
    using ModelProblem::ModelProblem;
    State step(const State& u, const Step& step) override {
      return step.index == 7 ? State() : TypedProblem::step(u, step);
    }
  };
  const Model model = pendulum();
  run_on_threads(2, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(hierarchy(2), transport);
    Empty problem(model);
    try {
      solver.solve(problem, usual());
      ADD_FAILURE() << "the solve must fail";
    } catch (const SolveError& error) {
      EXPECT_THAT(error.what(), HasSubstr("empty State"));
    }
  });
}

TEST(Failure, AWrongAnnouncedSizeIsAnErrorBeforeSending) {
  class Liar : public ModelProblem {
   public:
    using ModelProblem::ModelProblem;
    std::optional<std::int64_t> packed_bytes(const Place& /*place*/) override { return 8; }
  };
  const Model model = pendulum();
  run_on_threads(3, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(hierarchy(3), transport);
    Liar problem(model);
    try {
      solver.solve(problem, usual());
      ADD_FAILURE() << "the solve must fail";
    } catch (const SolveError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("announced 8 bytes"), HasSubstr("made 16")));
    }
  });
}

TEST(Failure, ANonFiniteStateIsReportedIfChecked) {
  Model model = pendulum();
  model.step = [inner = model.step](const Vector& u, const Step& step) {
    return step.level == 0 && step.index == 17 ? Vector{INFINITY, 0} : inner(u, step);
  };
  run_on_threads(kRanks, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(hierarchy(), transport);
    ModelProblem problem(model);
    Options options = usual();
    options.check_finite = true;
    try {
      solver.solve(problem, options);
      ADD_FAILURE() << "the solve must fail";
    } catch (const SolveError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("not finite"), HasSubstr("level 0"), HasSubstr("step 17"),
                                      HasSubstr("rank " + std::to_string(solver.hierarchy().owner(0, 18)))));
    }
  });
}

TEST(Failure, MissingZeroAndGuessAreExplained) {
  class Bare : public TypedProblem<double> {
   public:
    double initial_value() override { return 1; }
    double step(const double& u, const Step& /*step*/) override { return u; }
  };
  run_on_threads(2, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(hierarchy(2), transport);
    Bare problem;
    Options options;
    for (const auto& [guess, word] :
         {std::pair{InitialGuess::kZero, "Problem::zero"}, std::pair{InitialGuess::kCallback, "Problem::guess"}}) {
      options.initial_guess = guess;
      try {
        solver.solve(problem, options);
        ADD_FAILURE() << "the solve must fail";
      } catch (const SolveError& error) {
        EXPECT_THAT(error.what(), HasSubstr(word));
      }
    }
    options.skip_downcycle = true;  // does not need zero()
    options.initial_guess = InitialGuess::kZero;
    EXPECT_NO_THROW(solver.solve(problem, options));
    options.skip_downcycle = false;
    options.initial_guess = InitialGuess::kConstant;
    EXPECT_NO_THROW(solver.solve(problem, options));
  });
}

TEST(Failure, RejectsDifferentOptionsOrGridsOnTheRanks) {
  const Model model = pendulum();
  run_on_threads(3, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(hierarchy(3), transport);
    ModelProblem problem(model);
    Options options = usual();
    if (transport->rank() == 1) options.max_iterations = 5;
    EXPECT_THROW(solver.solve(problem, options), mpi::Disagreement);
    if (transport->rank() == 1) options.max_iterations = -1;
    EXPECT_THROW(solver.solve(problem, options), mpi::Disagreement);
    EXPECT_NO_THROW(solver.solve(problem, usual()));
    HierarchyOptions grids;
    grids.offsets =
        transport->rank() == 2 ? std::vector<std::int64_t>{0, 9, 18, 27} : std::vector<std::int64_t>{0, 8, 18, 27};
    Solver other(TimeHierarchy(kSteps, 3, grids), transport);
    ModelProblem fresh(model);
    EXPECT_THROW(other.solve(fresh), mpi::Disagreement);
    EXPECT_THROW(Solver(hierarchy(2), transport), std::invalid_argument);
  });
}

}  // namespace
}  // namespace weft::multigrid
