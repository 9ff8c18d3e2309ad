// Simulates the ranks of a pipeline: no order of work makes a rank wait forever, and 1F1B limits the live graphs.
#include "weft/layer_parallel/pipeline_schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace weft::layer_parallel {
namespace {

using Kind = PipelineAction::Kind;
using Schedules = std::vector<std::vector<PipelineAction>>;

// The results that an action needs: (kind, stage, micro-batch).
using Result = std::tuple<Kind, int, std::int64_t>;

std::vector<Result> needs(const PipelineAction& action, int stage, int stages, bool loss) {
  const std::int64_t m = action.micro_batch;
  switch (action.kind) {
    case Kind::kForward:
      if (stage > 0) return {{Kind::kForward, stage - 1, m}};
      return {};
    case Kind::kOutput:
    case Kind::kLoss:
      return {{Kind::kForward, stages - 1, m}};
    case Kind::kGradient:
      return {};
    case Kind::kBackward:
      if (stage < stages - 1) return {{Kind::kBackward, stage + 1, m}};
      return {{loss ? Kind::kLoss : Kind::kGradient, 0, m}};
  }
  return {};
}

int cost(Kind kind) { return kind == Kind::kForward ? 1 : kind == Kind::kBackward ? 2 : 0; }

// Executes the actions of all stages as their needs allow. Returns the time at which the last one ends, or nullopt if
// all stages wait.
std::optional<int> duration(const Schedules& schedules, bool loss) {
  const int stages = static_cast<int>(schedules.size());
  std::vector<std::size_t> next(schedules.size());
  std::vector<int> time(schedules.size());
  std::map<Result, int> done;
  for (bool progress = true; progress;) {
    progress = false;
    for (int stage = 0; stage < stages; ++stage) {
      const auto& schedule = schedules[stage];
      while (next[stage] < schedule.size()) {
        const auto& action = schedule[next[stage]];
        const auto needed = needs(action, stage, stages, loss);
        if (!std::all_of(needed.begin(), needed.end(), [&](const Result& r) { return done.contains(r); })) break;
        for (const Result& result : needed) time[stage] = std::max(time[stage], done[result]);
        time[stage] += cost(action.kind);
        done[{action.kind, stage, action.micro_batch}] = time[stage];
        ++next[stage];
        progress = true;
      }
    }
  }
  for (int stage = 0; stage < stages; ++stage) {
    if (next[stage] < schedules[stage].size()) return std::nullopt;
  }
  return *std::max_element(time.begin(), time.end());
}

bool completes(const Schedules& schedules, bool loss) { return duration(schedules, loss).has_value(); }

std::int64_t most_graphs(const std::vector<PipelineAction>& schedule) {
  std::int64_t now = 0, most = 0;
  for (const auto& action : schedule) {
    if (action.kind == Kind::kForward) most = std::max(most, ++now);
    if (action.kind == Kind::kBackward) --now;
  }
  return most;
}

TEST(PipelineSchedule, NoStageWaitsForever) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (std::int64_t micro_batches = 1; micro_batches <= 9; ++micro_batches) {
      Schedules forward, backward, one_by_one;
      for (int stage = 0; stage < stages; ++stage) {
        forward.push_back(forward_schedule(stage, micro_batches, true));
        backward.push_back(backward_schedule(stage, micro_batches, true));
        one_by_one.push_back(one_forward_one_backward(stage, stages, micro_batches));
      }
      EXPECT_TRUE(completes(forward, false)) << stages << " " << micro_batches;
      EXPECT_TRUE(completes(backward, false)) << stages << " " << micro_batches;
      EXPECT_TRUE(completes(one_by_one, true)) << stages << " " << micro_batches;
    }
  }
}

TEST(PipelineSchedule, OneForwardOneBackwardLimitsTheGraphs) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int stage = 0; stage < stages; ++stage) {
      EXPECT_EQ(most_graphs(one_forward_one_backward(stage, stages, 20)), stages - stage + 1);
      EXPECT_EQ(most_graphs(one_forward_one_backward(stage, stages, 2)), 2);
    }
  }
}

TEST(PipelineSchedule, OneForwardOneBackwardKeepsAllStagesBusy) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (const std::int64_t micro_batches : {stages, 2 * stages, 3 * stages + 1}) {
      Schedules schedules;
      for (int stage = 0; stage < stages; ++stage) {
        schedules.push_back(one_forward_one_backward(stage, stages, micro_batches));
      }
      EXPECT_EQ(duration(schedules, true), (micro_batches + stages - 1) * 3) << stages << " " << micro_batches;
    }
  }
}

TEST(PipelineSchedule, OneForwardOneBackwardOnTwoStages) {
  using enum PipelineAction::Kind;
  EXPECT_THAT(
      one_forward_one_backward(1, 2, 3),
      testing::ElementsAre(PipelineAction{kForward, 0}, PipelineAction{kForward, 1}, PipelineAction{kBackward, 0},
                           PipelineAction{kForward, 2}, PipelineAction{kBackward, 1}, PipelineAction{kBackward, 2}));
}

}  // namespace
}  // namespace weft::layer_parallel
