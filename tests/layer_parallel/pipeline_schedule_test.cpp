// Simulates the ranks of a pipeline: no order of work makes a rank wait forever, and 1F1B limits the live graphs.
#include "weft/layer_parallel/pipeline_schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
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

// Executes the actions of all stages as their needs allow. Returns false if all stages wait.
bool completes(const Schedules& schedules, bool loss) {
  const int stages = static_cast<int>(schedules.size());
  std::vector<std::size_t> next(schedules.size());
  std::set<Result> done;
  for (bool progress = true; progress;) {
    progress = false;
    for (int stage = 0; stage < stages; ++stage) {
      const auto& schedule = schedules[stage];
      while (next[stage] < schedule.size()) {
        const auto& action = schedule[next[stage]];
        const auto needed = needs(action, stage, stages, loss);
        if (!std::all_of(needed.begin(), needed.end(), [&](const Result& r) { return done.contains(r); })) break;
        done.insert({action.kind, stage, action.micro_batch});
        ++next[stage];
        progress = true;
      }
    }
  }
  for (int stage = 0; stage < stages; ++stage) {
    if (next[stage] < schedules[stage].size()) return false;
  }
  return true;
}

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

// The time of all stages if a forward takes 1, a backward 2 and a loss 0.
double duration(int stages, std::int64_t micro_batches) {
  std::map<Result, double> done;
  std::vector<double> now(static_cast<std::size_t>(stages));
  std::vector<std::size_t> next(static_cast<std::size_t>(stages));
  for (bool progress = true; progress;) {
    progress = false;
    for (int stage = 0; stage < stages; ++stage) {
      const auto schedule = one_forward_one_backward(stage, stages, micro_batches);
      for (; next[stage] < schedule.size(); ++next[stage]) {
        const auto& action = schedule[next[stage]];
        double start = now[stage];
        bool ready = true;
        for (const Result& result : needs(action, stage, stages, true)) {
          ready = ready && done.contains(result);
          if (ready) start = std::max(start, done[result]);
        }
        if (!ready) break;
        const double cost = action.kind == Kind::kForward ? 1 : action.kind == Kind::kBackward ? 2 : 0;
        now[stage] = done[{action.kind, stage, action.micro_batch}] = start + cost;
        progress = true;
      }
    }
  }
  return *std::max_element(now.begin(), now.end());
}

// The last stage must not wait for the loss: the backward work of all stages overlaps.
TEST(PipelineSchedule, StagesWaitOnlyAtBothEnds) {
  for (int stages = 1; stages <= 16; ++stages) {
    for (const std::int64_t micro_batches : {stages, 4 * stages}) {
      const double ideal = 3.0 * static_cast<double>(micro_batches + stages - 1);
      EXPECT_LE(duration(stages, micro_batches), 1.01 * ideal) << stages << " " << micro_batches;
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
