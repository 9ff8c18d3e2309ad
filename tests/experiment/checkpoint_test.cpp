// Checkpoints: back on any number of ranks, bit-equal runs after a stop, and files that are not what they should be.
#include "weft/experiment/checkpoint.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "tests/experiment/runs.h"
#include "weft/collective/broadcast.h"
#include "weft/experiment/safetensors.h"

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

// One for all ranks.
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
  run.training.go_on(progress_from(index.numbers));
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

// Stopped at several places: in pre-training, at an epoch's end, within an epoch.
TEST(CheckpointTest, GoesOnBitEqual) { expect_bit_equal_after_stops(toy(kModel)); }
TEST(CheckpointTest, GoesOnBitEqualInBatches) {
  expect_bit_equal_after_stops(toy(std::string("split: batch") + kModel));
}

// Written by all ranks, read by each alone; and the other way round.
TEST(CheckpointTest, AnyNumberOfRanksReadsIt) {
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
  // One rank writes what it read; all read it.
  const fs::path again = shared_folder("again");
  if (world()->rank() == 0) save(whole, again);
  world()->control().barrier();
  Trial third(experiment, world());
  load(third, again);
  expect_equal_states(third.training, split.training);
}

TEST(CheckpointTest, TheTwoLatestStay) {
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

// Whoever puts a folder of his own there may write its number shorter.
TEST(CheckpointTest, TheLatestHasTheLargestNumber) {
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
TEST(CheckpointTest, ARunThatDivergedIsReadBack) {
  const fs::path folder = shared_folder("diverged");
  Trial run(toy(kModel), world());
  CheckpointIndex facts = facts_of(run.training);
  facts.numbers["cost_sum"] = std::nan("");
  save_checkpoint(folder, run.training.state(), facts, 0, run.mesh);
  EXPECT_TRUE(std::isnan(progress_from(read_index(*latest_checkpoint(folder)).numbers).cost_sum));
}

TEST(CheckpointTest, OtherExperimentsAreRefused) {
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
    EXPECT_THAT(error.what(), HasSubstr("as this experiment has it"));
  }
  EXPECT_TRUE(at::equal(wrong.training.state().front().value, before));
}

// A folder without index, as a killed run leaves it, is none.
TEST(CheckpointTest, PartialOnesDoNotCount) {
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

// A rank that cannot write: all hear of it, and can go on.
TEST(CheckpointTest, AFullDiskIsToldToAll) {
  const fs::path folder = shared_folder("full");
  Trial run(toy(kModel), world());
  if (world()->rank() == 0) std::ofstream(folder) << "a file where the folder should be";
  world()->control().barrier();
  EXPECT_ANY_THROW(save(run, folder));
  EXPECT_NO_THROW(static_cast<void>(run.training.step(false)));
}

TEST(SafetensorsTest, ReadsBackAndKeepsTypes) {
  if (world()->rank() != 0) GTEST_SKIP();
  const fs::path file = fs::path(testing::TempDir()) / "weft-roundtrip.safetensors";
  const std::vector<float> a{1, 2, 3, 4, 5, 6};
  const std::vector<double> b{0.5};
  write_safetensors(file, {{"a", "F32", {2, 3}, a.data()}, {"b", "F64", {}, b.data()}, {"c", "F32", {0, 4}, nullptr}},
                    {{"key", "value"}});
  const SafetensorsFile read(file);
  EXPECT_EQ(read.tensors().size(), 3U);
  EXPECT_EQ(read.metadata().at("key"), "value");
  std::vector<float> back(6);
  read.read("a", back.data(), 24);
  EXPECT_EQ(back, a);
  EXPECT_THROW(read.read("a", back.data(), 20), CheckpointError);
  EXPECT_THROW(read.read("z", back.data(), 24), CheckpointError);
}

// Damage anywhere: an error or a file whose parts still fit each other, never more.
TEST(SafetensorsTest, DamageIsNoticed) {
  if (world()->rank() != 0) GTEST_SKIP();
  const fs::path file = fs::path(testing::TempDir()) / "weft-damaged.safetensors";
  const std::vector<float> a{1, 2, 3, 4};
  write_safetensors(file, {{"a", "F32", {4}, a.data()}}, {});
  std::ifstream stream(file, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(stream)), {});
  std::mt19937 random(5);
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string bad = good;
    if (i % 2 == 0) bad.resize(random() % good.size());
    if (i % 2 == 1) bad[random() % (good.size() - 16)] = static_cast<char>(random());
    std::ofstream(file, std::ios::binary) << bad;
    try {
      const SafetensorsFile damaged(file);
      for (const auto& [name, info] : damaged.tensors()) {
        std::vector<char> bytes(static_cast<std::size_t>(info.end - info.begin));
        damaged.read(name, bytes.data(), info.end - info.begin);
      }
    } catch (const CheckpointError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 400);
}

}  // namespace
}  // namespace weft::experiment
