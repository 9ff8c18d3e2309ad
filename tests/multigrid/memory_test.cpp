// The number of states that a solve keeps alive; none may outlive its use.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "tests/multigrid/thread_transport.h"
#include "weft/multigrid/problem/typed_problem.h"
#include "weft/multigrid/solver.h"

namespace weft::multigrid {
namespace {

// Counts the live values of a rank. A rank is a thread, but a message may release a value of another rank.
struct Ledger {
  std::atomic<int> alive = 0;
  int peak = 0;
};
thread_local Ledger ledger;

class Counted {
 public:
  explicit Counted(double value) : value_(value) { born(); }
  Counted(const Counted& other) : value_(other.value_) { born(); }
  Counted(Counted&& other) noexcept : value_(other.value_) { born(); }
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --mine_.alive; }
  [[nodiscard]] const double& value() const { return value_; }

 private:
  void born() { mine_.peak = std::max(mine_.peak, ++mine_.alive); }
  double value_;
  Ledger& mine_ = ledger;
};

}  // namespace

template <>
struct Algebra<Counted> {
  static Counted combine(double a, const Counted& x, double b, const Counted& y) {
    return Counted(a * x.value() + b * y.value());
  }
  static double norm(const Counted& u) { return std::abs(u.value()); }
  static std::span<const std::byte> bytes(const Counted& u) { return std::as_bytes(std::span(&u.value(), 1)); }
  static Counted from_bytes(std::span<const std::byte> bytes) {
    double value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return Counted(value);
  }
};

namespace {

class Decay : public TypedProblem<Counted> {
 public:
  Counted initial_value() override { return Counted(1); }
  Counted zero_value(const Place& /*place*/) override { return Counted(0); }
  Counted step(const Counted& u, const Step& step) override {
    return Counted(u.value() / (1 + (step.t_stop - step.t_start) * (1 + 0.1 * u.value())));
  }
};

constexpr std::int64_t kSteps = 512;
constexpr std::int64_t kFactor = 8;

HierarchyOptions grids(int levels) {
  HierarchyOptions options;
  options.coarsening = kFactor;
  options.max_levels = levels;
  return options;
}

int peak_of(Storage storage, int levels, InitialGuess guess = InitialGuess::kZero) {
  int peak = 0;
  run_on_threads(1, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(TimeHierarchy(kSteps, 1, grids(levels)), transport);
    Decay problem;
    Options options;
    options.relaxations = 1;
    options.max_iterations = 3;
    options.storage = storage;
    options.initial_guess = guess;
    ledger.peak = ledger.alive;
    solver.solve(problem, options);
    peak = ledger.peak;
  });
  return peak;
}

// Additional states beyond those of the levels: the current interval, arguments and results.
constexpr int kInWork = 12;

TEST(Memory, CPointStorageHoldsOnlyCPoints) {
  // The C-points and one right-hand side each, which becomes the coarse value. v shares the memory of the C-points.
  EXPECT_LE(peak_of(Storage::kCPoints, 2), 2 * (kSteps / kFactor) + kInWork);
  // A third level adds its C-points, right-hand sides and corrections.
  EXPECT_LE(peak_of(Storage::kCPoints, 3), 2 * (kSteps / kFactor) + 4 * (kSteps / kFactor / kFactor) + kInWork);
  // With one level, the C-points are those of the coarsening factor.
  EXPECT_LE(peak_of(Storage::kCPoints, 1), kSteps / kFactor + kInWork);
}

TEST(Memory, AllPointStorageHoldsAllFinePointsOnlyAfterTheSolve) {
  EXPECT_GE(peak_of(Storage::kAllPoints, 2), kSteps);
  EXPECT_LE(peak_of(Storage::kAllPoints, 2), kSteps + kInWork + 1);
}

TEST(Memory, ReleaseFreesAllStatesAndRepeatedSolvesDoNotGrow) {
  for (const int ranks : {1, 3}) {
    for (const auto storage : {Storage::kAllPoints, Storage::kCPoints}) {
      run_on_threads(ranks, [&](const std::shared_ptr<Transport>& transport) {
        Solver solver(TimeHierarchy(40, ranks, grids(3)), transport);
        Decay problem;
        Options options;
        options.max_iterations = 2;
        options.storage = storage;
        int first_peak = 0;
        for (int i = 0; i < 1000 / ranks; ++i) {
          ledger.peak = ledger.alive;
          solver.solve(problem, options);
          if (i == 0) first_peak = ledger.peak;
          if (i % 2 == 0) {
            solver.release();
            EXPECT_EQ(ledger.alive, 0);
          }
          // With several ranks, other messages may be in flight.
          EXPECT_LE(ledger.peak, ranks == 1 ? first_peak : 2 * first_peak);
        }
      });
    }
  }
}

TEST(Memory, PreviousGuessKeepsItsCPointsUntilCleared) {
  run_on_threads(1, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(TimeHierarchy(40, 1, grids(2)), transport);
    Decay problem;
    Options options;
    options.initial_guess = InitialGuess::kPrevious;
    solver.solve(problem, options);
    solver.release();
    EXPECT_EQ(ledger.alive, 6);  // points 0, 8, ..., 40
    solver.clear();
    EXPECT_EQ(ledger.alive, 0);
  });
}

TEST(Memory, AFailedSolveKeepsNoStates) {
  class Fails : public Decay {
   public:
    Counted step(const Counted& u, const Step& step) override {
      if (step.final && step.index == 39) throw std::runtime_error("late");
      return Decay::step(u, step);
    }
  };
  run_on_threads(2, [&](const std::shared_ptr<Transport>& transport) {
    Solver solver(TimeHierarchy(40, 2, grids(2)), transport);
    Fails problem;
    EXPECT_THROW(solver.solve(problem), SolveError);
    EXPECT_EQ(ledger.alive, 0);
  });
}

}  // namespace
}  // namespace weft::multigrid
