// Tests which changes of an experiment allow a run to resume.
#include "weft/experiment/run/resume_check.h"

#include <gmock/gmock.h>

#include "tests/experiment/run/runs.h"
#include "weft/experiment/file/problems.h"

namespace weft::experiment {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kBatches = 5;

struct Epochs {
  std::int64_t pretrain = 0;
  std::int64_t initial = 0;
  std::int64_t all = 0;
};

CheckpointIndex facts_of(const Epochs& epochs) {
  const Experiment experiment = toy(R"(
model:
  batch_size: 8
  cost: cross_entropy
  epochs: )" + std::to_string(epochs.all) +
                                    R"(
  pretrain: {epochs: )" + std::to_string(epochs.pretrain) +
                                    ", initial_epochs: " + std::to_string(epochs.initial) + R"(}
  optimizer: {type: sgd, rate: 0.05}
  layers:
    - local_filter: {maps: 3, kernel: 4}
    - l2_pool: 2
    - linear: {outputs: 3, activation: logistic}
)");
  return checkpoint_facts(experiment, stages_of(experiment.model), kBatches);
}

CheckpointIndex checkpoint_of(const Epochs& epochs, const Progress& progress) {
  CheckpointIndex index = facts_of(epochs);
  index.numbers.merge(numbers_of(progress));
  return index;
}

std::string refusal(const CheckpointIndex& then, const Epochs& now) {
  try {
    static_cast<void>(resume_point(then, facts_of(now)));
  } catch (const ExperimentError& error) {
    return error.what();
  }
  return "";
}

TEST(ResumeCheckTest, RejectsChangesOfFinishedStages) {
  const auto in_training = checkpoint_of({2, 0, 3}, {.stage = 1, .epoch = 1, .step = 15});
  EXPECT_THAT(refusal(in_training, {0, 0, 3}), HasSubstr("but the run started with 2 epochs of pre-training layer 0"));
  EXPECT_THAT(refusal(in_training, {3, 0, 3}), HasSubstr("stage 1 of training is 3 epochs of pre-training layer 0"));
  EXPECT_THAT(refusal(in_training, {2, 1, 3}), HasSubstr("but the run started with 3 epochs of the whole network"));
  EXPECT_EQ(refusal(in_training, {2, 0, 3}), "");
  EXPECT_EQ(refusal(in_training, {2, 0, 7}), "");
  EXPECT_EQ(refusal(in_training, {2, 0, 1}), "");
}

TEST(ResumeCheckTest, AcceptsChangesOfLaterStages) {
  const auto in_pretraining = checkpoint_of({2, 0, 3}, {.stage = 0, .epoch = 1, .step = 5});
  EXPECT_EQ(refusal(in_pretraining, {2, 1, 5}), "");
  EXPECT_THAT(refusal(in_pretraining, {1, 0, 3}), HasSubstr("started with 2 epochs of pre-training"));
}

TEST(ResumeCheckTest, FinishedRunsAcceptMoreEpochs) {
  const auto finished = checkpoint_of({2, 0, 1}, {.stage = 2, .step = 15});
  EXPECT_THAT(refusal(finished, {3, 0, 1}), HasSubstr("started with 2 epochs of pre-training"));
  EXPECT_THAT(refusal(finished, {2, 2, 4}), HasSubstr("started with 1 epoch of the whole network"));
  const Progress more = resume_point(finished, facts_of({2, 0, 4}));
  EXPECT_EQ(more.stage, 1);
  EXPECT_EQ(more.epoch, 1);
  EXPECT_EQ(more.step, 15);
}

// One of two initial epochs was trained; now both are requested, and then the whole network.
TEST(ResumeCheckTest, FinishedRunsContinueWithAnotherStage) {
  const auto finished = checkpoint_of({0, 2, 1}, {.stage = 1, .step = 5});
  const Progress more = resume_point(finished, facts_of({0, 2, 4}));
  EXPECT_EQ(more.stage, 0);
  EXPECT_EQ(more.epoch, 1);
  EXPECT_THAT(refusal(checkpoint_of({0, 5, 5}, {.stage = 0, .epoch = 4, .step = 20}), {0, 2, 5}),
              HasSubstr("started with 5 epochs of the last layer alone"));
}

TEST(ResumeCheckTest, AcceptsCheckpointsWithoutStages) {
  auto old = checkpoint_of({2, 0, 3}, {.stage = 1, .epoch = 1, .step = 15});
  old.stages.clear();
  EXPECT_EQ(refusal(old, {0, 0, 3}), "");
}

TEST(ResumeCheckTest, RejectsAnotherOrderOfImages) {
  const auto then = checkpoint_of({0, 0, 3}, {.stage = 0, .epoch = 1, .step = 5});
  auto now = facts_of({0, 0, 3});
  now.numbers["batches"] = 6;
  EXPECT_THROW(static_cast<void>(resume_point(then, now)), ExperimentError);
}

TEST(ResumeCheckTest, RejectsOtherImages) {
  auto then = checkpoint_of({0, 0, 3}, {.stage = 0, .epoch = 1, .step = 5});
  auto now = facts_of({0, 0, 3});
  now.data = {{"set", "blobs"}, {"sample", "1"}};
  EXPECT_NO_THROW(static_cast<void>(resume_point(then, now)));  // the checkpoint has no description
  then.data = {{"set", "shapes"}, {"sample", "1"}};
  EXPECT_THROW(static_cast<void>(resume_point(then, now)), ExperimentError);
  then.data = now.data;
  EXPECT_NO_THROW(static_cast<void>(resume_point(then, now)));
}

}  // namespace
}  // namespace weft::experiment
