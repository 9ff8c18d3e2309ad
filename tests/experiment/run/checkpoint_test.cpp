// Tests checkpoints: restoring on any number of ranks, bit-equal resumption, and damaged files.
#include "weft/experiment/run/checkpoint.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "tests/experiment/run/runs.h"
#include "weft/collective/broadcast.h"
#include "weft/experiment/training/checkpoint_error.h"

namespace weft::experiment {
namespace {

namespace fs = std::filesystem;
using at::Tensor;
using testing::HasSubstr;

constexpr const char* kModel = R"(
model:
  epochs: 2
  batch_size: 7
  optimizer: {type: adam, rate: 0.01}
  pretrain: {epochs: 1}
  layers:
    - local_filter: {maps: 3, kernel: 3, sparsity: 0.1}
    - l2_pool: 2
    - conv: {maps: 2, kernel: 3, padding: 1}
    - batch_norm
    - dropout: 0.3
    - residual: [conv: {maps: 2, kernel: 3, padding: 1}, batch_norm, dropout: 0.1, {group_norm: 2}]
    - linear: {outputs: 6, activation: relu}
    - residual: {layers: [linear: 6, layer_norm], shortcut: [linear: 6]}
    - linear: 3
)";

// Returns an empty path that all ranks share.
fs::path shared_folder(const std::string& name) {
  const std::string tail = name + "-" + std::to_string(world()->size());
  const fs::path folder = fs::path(testing::TempDir()) / ("weft-checkpoint-" + tail);
  if (world()->rank() == 0) fs::remove_all(folder);
  world()->control().barrier();
  return folder;
}

CheckpointIndex facts_of(const Training& training) {
  return {"toy", world()->size(), numbers_of(training.progress()), {}};
}

void save(Trial& run, const fs::path& folder) {
  save_checkpoint(folder, run.training.state(), facts_of(run.training), run.training.progress().step, run.mesh);
}

void load(Trial& run, const fs::path& folder) {
  const auto latest = latest_checkpoint(folder);
  ASSERT_TRUE(latest.has_value());
  const CheckpointIndex index = read_index(*latest);
  load_checkpoint(*latest, index, run.training.state());
  run.training.resume(progress_from(index.numbers));
}

void expect_equal_states(Training& a, Training& b) {
  const auto mine = a.state();
  const auto theirs = b.state();
  ASSERT_EQ(mine.size(), theirs.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_EQ(mine[i].name, theirs[i].name);
    EXPECT_TRUE(at::equal(mine[i].value, theirs[i].value)) << mine[i].name;
  }
}

void expect_bit_equal_after_stops(const Experiment& experiment) {
  Trial unbroken(experiment, world());
  const auto expected = unbroken.finish();
  for (const int stop : {3, 6, 11}) {
    const fs::path folder = shared_folder("resume" + std::to_string(stop));
    {
      Trial first(experiment, world());
      for (int i = 0; i < stop; ++i) static_cast<void>(first.training.step(false));
      save(first, folder);
    }
    Trial second(experiment, world());
    load(second, folder);
    const auto rest = second.finish();
    ASSERT_EQ(rest.size() + static_cast<std::size_t>(stop), expected.size());
    for (std::size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(rest[i], expected[i + static_cast<std::size_t>(stop)]);
    expect_equal_states(second.training, unbroken.training);
  }
}

// Stops during pre-training, at the end of an epoch, and within an epoch.
TEST(CheckpointTest, ResumesBitEqual) { expect_bit_equal_after_stops(toy(kModel)); }
TEST(CheckpointTest, ResumesBitEqualWithSplitBatches) {
  expect_bit_equal_after_stops(toy(std::string("split: batch") + kModel));
}

// All ranks write and each reads alone; then one rank writes and all read.
TEST(CheckpointTest, RestoresOnAnyNumberOfRanks) {
  const Experiment experiment = toy(kModel);
  const fs::path folder = shared_folder("ranks");
  Trial split(experiment, world());
  for (int i = 0; i < 9; ++i) static_cast<void>(split.training.step(false));
  save(split, folder);
  Trial whole(experiment, alone());
  load(whole, folder);
  const auto mine = split.training.state();
  const auto theirs = whole.training.state();
  ASSERT_EQ(mine.size(), theirs.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(at::equal(cut(theirs[i].value.detach(), mine[i].part), mine[i].value)) << mine[i].name;
  }
  const fs::path again = shared_folder("again");
  if (world()->rank() == 0) save(whole, again);
  world()->control().barrier();
  Trial third(experiment, world());
  load(third, again);
  expect_equal_states(third.training, split.training);
}

TEST(CheckpointTest, KeepsTheTwoLatest) {
  const fs::path folder = shared_folder("kept");
  Trial run(toy(kModel), world());
  for (int i = 0; i < 4; ++i) {
    static_cast<void>(run.training.step(false));
    save(run, folder);
  }
  EXPECT_EQ(latest_checkpoint(folder)->filename(), "step-00000004");
  EXPECT_TRUE(fs::exists(folder / "checkpoints/step-00000003"));
  EXPECT_FALSE(fs::exists(folder / "checkpoints/step-00000002"));
}

// Users may add folders whose numbers have fewer digits.
TEST(CheckpointTest, LatestHasTheLargestNumber) {
  const fs::path folder = shared_folder("numbers");
  Trial run(toy(kModel), world());
  static_cast<void>(run.training.step(false));
  save(run, folder);
  const fs::path checkpoints = folder / "checkpoints";
  const auto another = [&](const char* name) { fs::copy(checkpoints / "step-00000001", checkpoints / name); };
  if (world()->rank() == 0) {
    for (const char* name : {"step-00000240", "step-120", "step-99999999", "step-100000000", "step-x", "step-7z"}) {
      another(name);
    }
  }
  world()->control().barrier();
  EXPECT_EQ(latest_checkpoint(folder)->filename(), "step-100000000");
}

// JSON has no NaN.
TEST(CheckpointTest, RestoresADivergedRun) {
  const fs::path folder = shared_folder("diverged");
  Trial run(toy(kModel), world());
  CheckpointIndex facts = facts_of(run.training);
  facts.numbers["cost_sum"] = std::nan("");
  save_checkpoint(folder, run.training.state(), facts, 0, run.mesh);
  EXPECT_TRUE(std::isnan(progress_from(read_index(*latest_checkpoint(folder)).numbers).cost_sum));
}

TEST(CheckpointTest, RejectsOtherExperiments) {
  const fs::path folder = shared_folder("other");
  Trial run(toy(kModel), world());
  save(run, folder);
  std::string other = kModel;
  other.replace(other.find("outputs: 6"), 10, "outputs: 5");
  Trial wrong(toy(other), world());
  const auto before = wrong.training.state().front().value.clone();
  const fs::path latest = *latest_checkpoint(folder);
  try {
    load_checkpoint(latest, read_index(latest), wrong.training.state());
    FAIL() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("does not match: this experiment has"));
  }
  EXPECT_TRUE(at::equal(wrong.training.state().front().value, before));
}

std::string read_bytes(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Flips a bit in bytes all over the files of a checkpoint. Loading must fail, or restore the same values.
TEST(CheckpointTest, FlippedBitsAreDetected) {
  const fs::path folder = shared_folder("flipped");
  Trial run(toy(kModel), world());
  for (int i = 0; i < 9; ++i) static_cast<void>(run.training.step(false));
  save(run, folder);
  if (world()->rank() != 0) return;
  const fs::path latest = *latest_checkpoint(folder);
  Trial whole(toy(kModel), alone());
  load(whole, folder);
  std::vector<Tensor> saved;
  for (const Parameter& parameter : whole.training.state()) saved.push_back(parameter.value.detach().clone());
  const auto numbers = read_index(latest).numbers;
  Trial other(toy(kModel), alone());
  int detected = 0;
  for (const auto& entry : fs::directory_iterator(latest)) {
    const std::string content = read_bytes(entry.path());
    for (std::size_t at = 0; at < content.size(); at += 1 + content.size() / 61) {
      std::string flipped = content;
      flipped[at] = static_cast<char>(flipped[at] ^ 4);
      std::ofstream(entry.path(), std::ios::binary) << flipped;
      try {
        const CheckpointIndex index = read_index(latest);
        load_checkpoint(latest, index, other.training.state());
        EXPECT_EQ(index.numbers, numbers) << entry.path() << " byte " << at;
        const auto restored = other.training.state();
        for (std::size_t i = 0; i < saved.size(); ++i)
          EXPECT_TRUE(at::equal(restored[i].value, saved[i])) << entry.path() << " byte " << at;
      } catch (const CheckpointError& error) {
        EXPECT_THAT(error.what(), HasSubstr(kDamageAdvice));
        ++detected;
      }
    }
    std::ofstream(entry.path(), std::ios::binary) << content;
  }
  EXPECT_GT(detected, 61);
  load(whole, folder);
}

// The message names the file and the tensor. Values of other tensors are not changed.
TEST(CheckpointTest, DamagedValuesAreReported) {
  const fs::path folder = shared_folder("damaged");
  Trial run(toy(kModel), alone());
  if (world()->rank() != 0) return;
  save(run, folder);
  const fs::path shard = *latest_checkpoint(folder) / "shard-0-of-1.safetensors";
  std::string content = read_bytes(shard);
  content.back() = static_cast<char>(content.back() ^ 1);
  std::ofstream(shard, std::ios::binary) << content;
  try {
    load(run, folder);
    FAIL() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("shard-0-of-1.safetensors is damaged: the checksum of '"));
    EXPECT_THAT(error.what(), HasSubstr(run.training.state().back().name));
  }
}

// A killed run leaves a folder without an index.
TEST(CheckpointTest, IgnoresIncompleteFolders) {
  const fs::path folder = shared_folder("partial");
  EXPECT_FALSE(latest_checkpoint(folder).has_value());
  if (world()->rank() == 0) {
    fs::create_directories(folder / "checkpoints/.step-00000009.partial");
    fs::create_directories(folder / "checkpoints/step-00000008");
  }
  world()->control().barrier();
  EXPECT_FALSE(latest_checkpoint(folder).has_value());
  EXPECT_THROW(static_cast<void>(read_index(folder / "checkpoints/step-00000008")), CheckpointError);
}

// If one rank cannot write, all ranks throw and can continue.
TEST(CheckpointTest, WriteErrorsThrowOnAllRanks) {
  const fs::path folder = shared_folder("full");
  Trial run(toy(kModel), world());
  if (world()->rank() == 0) std::ofstream(folder) << "a file where the folder should be";
  world()->control().barrier();
  EXPECT_ANY_THROW(save(run, folder));
  EXPECT_NO_THROW(static_cast<void>(run.training.step(false)));
}

}  // namespace
}  // namespace weft::experiment
