// The recorded task graph: completeness, order and dependencies.
#include "weft/multigrid/problem/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <sstream>

#include "tests/multigrid/model.h"
#include "tests/multigrid/thread_transport.h"
#include "weft/multigrid/solver.h"

namespace weft::multigrid {
namespace {

using testing::HasSubstr;

struct Recorded {
  std::vector<Task> tasks;
  Statistics statistics;
  std::string json;
};

std::vector<Recorded> record(int ranks, int levels, const std::vector<std::int64_t>& offsets = {}) {
  std::vector<Recorded> all(static_cast<std::size_t>(ranks));
  const Model model = pendulum();
  run_on_threads(ranks, [&](const std::shared_ptr<Transport>& transport) {
    HierarchyOptions grids;
    grids.max_levels = levels;
    grids.coarsening = 3;
    grids.offsets = offsets;
    Solver solver(TimeHierarchy(20, ranks, grids), transport);
    ModelProblem problem(model);
    Recorder recorder;
    Options options;
    options.max_iterations = 2;
    options.relaxations = 1;
    options.recorder = &recorder;
    const Statistics statistics = solver.solve(problem, options);
    std::ostringstream json;
    recorder.write_json(json, transport->rank());
    all[static_cast<std::size_t>(transport->rank())] = {recorder.tasks(), statistics, json.str()};
  });
  return all;
}

std::int64_t count(const std::vector<Task>& tasks, TaskKind kind, int level = -1) {
  return std::count_if(tasks.begin(), tasks.end(),
                       [&](const Task& task) { return task.kind == kind && (level < 0 || task.level == level); });
}

TEST(Recorder, RecordsEveryStepAndMessage) {
  std::int64_t sends = 0, receives = 0;
  for (const Recorded& rank : record(3, 3)) {
    for (int level = 0; level < 3; ++level) {
      EXPECT_EQ(count(rank.tasks, TaskKind::kStep, level), rank.statistics.steps[static_cast<std::size_t>(level)]);
    }
    EXPECT_EQ(count(rank.tasks, TaskKind::kSend), rank.statistics.messages_sent);
    sends += count(rank.tasks, TaskKind::kSend);
    receives += count(rank.tasks, TaskKind::kReceive);
  }
  EXPECT_GT(sends, 0);
  EXPECT_EQ(sends, receives);
}

TEST(Recorder, TasksDependOnFinishedEarlierTasks) {
  for (const Recorded& rank : record(3, 3)) {
    for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
      const Task& task = rank.tasks[i];
      EXPECT_GE(task.duration_ns, 0);
      for (const std::int64_t need : task.needs) {
        ASSERT_LT(need, static_cast<std::int64_t>(i));
        const Task& earlier = rank.tasks[static_cast<std::size_t>(need)];
        EXPECT_LE(earlier.start_ns + earlier.duration_ns, task.start_ns);
        EXPECT_NE(earlier.kind, TaskKind::kSend);
      }
    }
  }
}

// In a serial solve each step depends on the one before, and the first step of a rank on the received value.
TEST(Recorder, SerialSolveIsAChain) {
  const std::vector<Recorded> ranks = record(2, 1);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::vector<Task>& tasks = ranks[rank].tasks;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (rank == 0 && i == 0) {
        EXPECT_TRUE(tasks[i].needs.empty());
      } else if (tasks[i].kind == TaskKind::kReceive) {
        EXPECT_EQ(i, 0U);
      } else {
        EXPECT_THAT(tasks[i].needs, testing::ElementsAre(static_cast<std::int64_t>(i) - 1));
      }
    }
    EXPECT_EQ(count(tasks, TaskKind::kStep), 10);
  }
  EXPECT_EQ(ranks[0].tasks.back().kind, TaskKind::kSend);
  EXPECT_EQ(ranks[0].tasks.back().peer, 1);
  EXPECT_EQ(ranks[1].tasks.front().peer, 0);
}

// The kinds of the first tasks of a rank on the finest level.
std::string opening(const Recorded& rank, std::size_t length) {
  std::string kinds;
  for (const Task& task : rank.tasks) {
    if (task.level == 0 && kinds.size() < length)
      kinds += "x+<>"[static_cast<int>(task.kind)];  // step, combine, send, receive
  }
  return kinds;
}

// The middle rank of three sends the value that its neighbour waits for first, and receives its own last.
TEST(Recorder, SweepsServeTheNextRankFirst) {
  // Points 7 to 12: the last one is a C-point with a known value. The interval of 7 and 8 starts from C-point 6.
  EXPECT_EQ(opening(record(3, 2, {0, 7, 13, 21})[1], 8), "<xxx>xxx");
  // Points 6 to 11: 10 and 11 first, then C-point 9 with its interval; C-point 6 needs point 5.
  EXPECT_EQ(opening(record(3, 2, {0, 6, 12, 21})[1], 8), "xx<xxx>x");
  // Points 7 and 8, an interval that starts and ends on other ranks: there is nothing to do before.
  EXPECT_EQ(opening(record(3, 2, {0, 7, 9, 21})[1], 4), ">xx<");
}

// Two iterations, each with a relaxation sweep, a residual sweep and the coarsest level, and the final sweep. v needs a
// separate message only if the boundary does not follow a C-point.
TEST(Recorder, MessagesAcrossABoundary) {
  EXPECT_EQ(record(3, 2, {0, 7, 13, 21})[1].statistics.messages_sent, 2 * 3 + 1);
  EXPECT_EQ(record(3, 2, {0, 6, 12, 21})[1].statistics.messages_sent, 2 * 4 + 1);
  EXPECT_EQ(record(3, 1, {0, 6, 12, 21})[1].statistics.messages_sent, 1);
  EXPECT_EQ(record(3, 2, {0, 7, 13, 21})[2].statistics.messages_sent, 0);
}

TEST(Recorder, WritesChromeTraceFormat) {
  const Recorded rank = record(2, 2)[1];
  EXPECT_EQ(rank.json.front(), '[');
  EXPECT_THAT(rank.json, HasSubstr(R"({"ph": "X", "name": "step", "pid": 1, "tid": 0, "ts": )"));
  const auto events = std::count(rank.json.begin(), rank.json.end(), '\n') - 2;
  EXPECT_EQ(static_cast<std::size_t>(events), rank.tasks.size());
  EXPECT_EQ(std::count(rank.json.begin(), rank.json.end(), '{'), std::count(rank.json.begin(), rank.json.end(), '}'));
}

TEST(Recorder, ClearRemovesAllTasks) {
  Recorder recorder;
  const auto now = Recorder::Clock::now();
  EXPECT_EQ(recorder.add({}, now, now), 0);
  recorder.clear();
  EXPECT_TRUE(recorder.tasks().empty());
  EXPECT_EQ(recorder.add({}, now, now), 0);
}

}  // namespace
}  // namespace weft::multigrid
