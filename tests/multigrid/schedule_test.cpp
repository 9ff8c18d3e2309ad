// Replays recorded solves with costs for steps and messages, to check how well the schedule hides communication.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "tests/multigrid/model.h"
#include "tests/multigrid/thread_transport.h"
#include "weft/multigrid/problem/recorder.h"
#include "weft/multigrid/solver.h"

namespace weft::multigrid {
namespace {

constexpr std::int64_t kSteps = 256;
constexpr std::int64_t kFactor = 4;
constexpr int kRanks = 4;
constexpr int kIterations = 3;

using Tasks = std::vector<std::vector<Task>>;  // tasks of each rank

Tasks record(int ranks) {
  Tasks tasks(static_cast<std::size_t>(ranks));
  const Model model = pendulum();
  run_on_threads(ranks, [&](const std::shared_ptr<Transport>& transport) {
    HierarchyOptions grids;
    grids.coarsening = kFactor;
    Solver solver(TimeHierarchy(kSteps, ranks, grids), transport);
    ModelProblem problem(model);
    Recorder recorder;
    Options options;
    options.max_iterations = kIterations;
    options.absolute_tolerance = 0;
    options.relaxations = 1;
    options.compute_residual = false;  // the recorder does not see its reduction
    options.recorder = &recorder;
    solver.solve(problem, options);
    tasks[static_cast<std::size_t>(transport->rank())] = recorder.tasks();
  });
  return tasks;
}

// Every rank executes its tasks in the recorded order. A step takes 1, a message `latency` and a combine 0.
class Replay {
 public:
  Replay(const Tasks& tasks, double latency)
      : tasks_(tasks), latency_(latency), now_(tasks.size()), next_(tasks.size()) {}

  // The time at which the last rank is done.
  double run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < tasks_.size(); ++rank) {
        while (next_[rank] < tasks_[rank].size() && play(static_cast<int>(rank), tasks_[rank][next_[rank]])) {
          ++next_[rank];
          moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < tasks_.size(); ++rank) EXPECT_EQ(next_[rank], tasks_[rank].size()) << "stuck";
    return *std::max_element(now_.begin(), now_.end());
  }

 private:
  bool play(int rank, const Task& task) {
    double& now = now_[static_cast<std::size_t>(rank)];
    if (task.kind == TaskKind::kStep) now += 1;
    if (task.kind == TaskKind::kSend) arrivals_[{rank, task.peer, task.level}].push_back(now + latency_);
    if (task.kind != TaskKind::kReceive) return true;
    auto& arrivals = arrivals_[{task.peer, rank, task.level}];
    if (arrivals.empty()) return false;
    now = std::max(now, arrivals.front());
    arrivals.pop_front();
    return true;
  }

  const Tasks& tasks_;
  double latency_;
  std::vector<double> now_;
  std::vector<std::size_t> next_;
  std::map<std::tuple<int, int, int>, std::deque<double>> arrivals_;
};

constexpr std::int64_t kCoarse = kSteps / kFactor;
// Relaxation, residual, coarse residual and coarse solve of each iteration, and the final sweep.
constexpr std::int64_t kAll = kIterations * (2 * kSteps + 2 * kCoarse) + kSteps;
// The share of one rank, plus the time until the last rank can start on the coarsest level. Afterwards the ranks are
// staggered by exactly that time and never wait again.
constexpr double kIdeal = static_cast<double>(kAll / kRanks + kCoarse - kCoarse / kRanks);

TEST(Schedule, RanksWaitOnlyOnceForTheSerialLevel) { EXPECT_EQ(Replay(record(kRanks), 0).run(), kIdeal); }

TEST(Schedule, OneRankRepeatsNoWork) { EXPECT_EQ(Replay(record(1), 5).run(), static_cast<double>(kAll)); }

// A sweep needs its message last. Only the first pass through the coarsest level from rank to rank cannot be hidden.
TEST(Schedule, SweepsHideTheirMessages) {
  const Tasks tasks = record(kRanks);
  for (const double latency : {1.0, 8.0, 30.0}) {
    EXPECT_EQ(Replay(tasks, latency).run(), kIdeal + (kRanks - 1) * latency);
  }
}

}  // namespace
}  // namespace weft::multigrid
