// Replays small graphs whose times can be computed by hand.
#include "weft/planning/replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weft::planning {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// One core per rank; communication costs nothing.
Machine ideal(int ranks) { return {.latency = 0, .bandwidth = kInfinity, .cores = ranks, .ranks_per_node = ranks}; }

// A value that passes through all ranks, each of which works for `seconds`.
TaskGraph chain(int ranks, double seconds, std::int64_t bytes) {
  TaskGraph graph(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    Tasks& tasks = graph[static_cast<std::size_t>(rank)];
    if (rank > 0) receive(tasks, rank - 1, 0);
    compute(tasks, seconds);
    if (rank + 1 < ranks) send(tasks, rank + 1, 0, bytes);
  }
  return graph;
}

TEST(Replay, OneRankTakesTheSumOfItsWork) {
  TaskGraph graph(1);
  for (const double seconds : {1.0, 2.5, 0.25}) {
    graph[0].push_back({.kind = Task::Kind::kCompute, .seconds = seconds});
    synchronize(graph[0]);
  }
  const Replay result = replay(graph, {.latency = 5, .bandwidth = 1, .cores = 1, .ranks_per_node = 1});
  EXPECT_DOUBLE_EQ(result.seconds, 3.75);
  EXPECT_EQ(result.busy, std::vector<double>{3.75});
}

TEST(Replay, MessagesCostLatencyAndBytes) {
  const TaskGraph graph = chain(5, 2, 1000);
  EXPECT_DOUBLE_EQ(replay(graph, ideal(5)).seconds, 10);
  EXPECT_DOUBLE_EQ(replay(graph, {3, kInfinity, 5, 5}).seconds, 10 + 4 * 3);  // only latency
  EXPECT_DOUBLE_EQ(replay(graph, {0, 500, 5, 5}).seconds, 10 + 4 * 2);        // only bandwidth
  const Replay both = replay(graph, {3, 500, 5, 5});
  EXPECT_DOUBLE_EQ(both.seconds, 10 + 4 * 5);
  EXPECT_EQ(both.messages, 4);
  EXPECT_EQ(both.bytes, 4000);
}

TEST(Replay, SendersDoNotWait) {
  TaskGraph graph(2);
  send(graph[0], 1, 0, 100);
  compute(graph[0], 1);
  compute(graph[1], 4);
  receive(graph[1], 0, 0);
  EXPECT_DOUBLE_EQ(replay(graph, {2, 100, 2, 2}).seconds, 4);  // the message arrives at 3
}

TEST(Replay, ChannelsAreIndependentAndOrdered) {
  TaskGraph graph(2);
  send(graph[0], 1, 0, 10);
  compute(graph[0], 1);
  send(graph[0], 1, 1, 0);
  receive(graph[1], 0, 1);  // sent later
  receive(graph[1], 0, 0);
  EXPECT_DOUBLE_EQ(replay(graph, {0, 1, 2, 2}).seconds, 10);
}

TEST(Replay, ReductionsWaitForTheLastRank) {
  for (const auto& [ranks, rounds] : std::vector<std::pair<int, int>>{{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {8, 3}}) {
    TaskGraph graph(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      compute(graph[static_cast<std::size_t>(rank)], rank);
      synchronize(graph[static_cast<std::size_t>(rank)]);
      compute(graph[static_cast<std::size_t>(rank)], 1);
    }
    const Machine machine{.latency = 0.5, .bandwidth = kInfinity, .cores = ranks, .ranks_per_node = ranks};
    EXPECT_DOUBLE_EQ(replay(graph, machine).seconds, ranks - 1 + 0.5 * rounds + 1);
  }
}

TEST(Replay, ReductionsOverlapWithWork) {
  TaskGraph graph(2);
  for (Tasks& tasks : graph) {
    tasks.push_back({.kind = Task::Kind::kJoin});
    compute(tasks, 3);
    tasks.push_back({.kind = Task::Kind::kWait});
  }
  EXPECT_DOUBLE_EQ(replay(graph, {2, kInfinity, 2, 2}).seconds, 3);
  EXPECT_DOUBLE_EQ(replay(graph, {7, kInfinity, 2, 2}).seconds, 7);
}

TEST(Replay, RanksShareTheCoresOfANode) {
  TaskGraph graph(4);
  for (Tasks& tasks : graph) compute(tasks, 1);
  EXPECT_DOUBLE_EQ(replay(graph, {0, 1, 4, 4}).seconds, 1);
  EXPECT_DOUBLE_EQ(replay(graph, {0, 1, 2, 4}).seconds, 2);
  EXPECT_DOUBLE_EQ(replay(graph, {0, 1, 3, 4}).seconds, 2);
  EXPECT_DOUBLE_EQ(replay(graph, {0, 1, 1, 4}).seconds, 4);
  EXPECT_DOUBLE_EQ(replay(graph, {0, 1, 1, 2}).seconds, 2);  // two nodes of one core
}

TEST(Replay, WaitingNeedsNoCore) { EXPECT_DOUBLE_EQ(replay(chain(4, 1, 0), {0, 1, 1, 4}).seconds, 4); }

TEST(Replay, InconsistentGraphsAreRejected) {
  TaskGraph cycle(2);
  receive(cycle[0], 1, 0);
  receive(cycle[1], 0, 0);
  EXPECT_THROW(static_cast<void>(replay(cycle, ideal(2))), std::invalid_argument);
  TaskGraph unknown(1);
  send(unknown[0], 1, 0, 0);
  EXPECT_THROW(static_cast<void>(replay(unknown, ideal(1))), std::invalid_argument);
  TaskGraph unjoined(1);
  unjoined[0].push_back({.kind = Task::Kind::kWait});
  EXPECT_THROW(static_cast<void>(replay(unjoined, ideal(1))), std::invalid_argument);
  TaskGraph lonely(2);
  synchronize(lonely[0]);
  EXPECT_THROW(static_cast<void>(replay(lonely, ideal(2))), std::invalid_argument);
}

TEST(Replay, InvalidMachinesAreRejected) {
  for (const Machine& machine : {Machine{.latency = -1}, Machine{.bandwidth = 0}, Machine{.cores = 0},
                                 Machine{.ranks_per_node = 0}, Machine{.latency = std::nan("")}}) {
    EXPECT_THROW(static_cast<void>(replay({}, machine)), std::invalid_argument);
  }
}

}  // namespace
}  // namespace weft::planning
