// TimeHierarchy: levels, factors, owners and neighbours for even and uneven splits.
#include "weft/multigrid/hierarchy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace weft::multigrid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HierarchyOptions with(int levels, std::int64_t factor, std::int64_t least = 2) {
  HierarchyOptions options;
  options.max_levels = levels;
  options.coarsening = factor;
  options.min_coarse_steps = least;
  return options;
}

std::vector<std::int64_t> steps_of(const TimeHierarchy& hierarchy) {
  std::vector<std::int64_t> steps;
  for (int level = 0; level < hierarchy.levels(); ++level) steps.push_back(hierarchy.steps(level));
  return steps;
}

TEST(TimeHierarchy, CoarsensUntilALimit) {
  EXPECT_THAT(steps_of(TimeHierarchy(64, 1, with(9, 4))),
              ElementsAre(64, 16, 4));  // a level of 1 step would be too small
  EXPECT_THAT(steps_of(TimeHierarchy(64, 1, with(9, 4, 1))), ElementsAre(64, 16, 4, 1));
  EXPECT_THAT(steps_of(TimeHierarchy(64, 1, with(2, 4))), ElementsAre(64, 16));
  EXPECT_THAT(steps_of(TimeHierarchy(64, 1, with(9, 4, 10))), ElementsAre(64, 16));
  EXPECT_THAT(steps_of(TimeHierarchy(30, 1, with(3, 4, 1))), ElementsAre(30, 7, 1));
  EXPECT_THAT(steps_of(TimeHierarchy(1, 3, with(5, 2))), ElementsAre(1));
  HierarchyOptions mixed = with(4, 2);
  mixed.coarsening.set(0, 5);
  EXPECT_THAT(steps_of(TimeHierarchy(100, 1, mixed)), ElementsAre(100, 20, 10, 5));
}

TEST(TimeHierarchy, DividesTheStepsEvenly) {
  const TimeHierarchy hierarchy(10, 3, with(2, 4));
  EXPECT_EQ(hierarchy.points(0, 0), (partition::Range{0, 5}));  // 4 steps and point 0
  EXPECT_EQ(hierarchy.points(0, 1), (partition::Range{5, 8}));
  EXPECT_EQ(hierarchy.points(0, 2), (partition::Range{8, 11}));
  EXPECT_EQ(hierarchy.points(1, 0), (partition::Range{0, 2}));
  EXPECT_TRUE(hierarchy.points(1, 1).empty());
  EXPECT_EQ(hierarchy.points(1, 2), (partition::Range{2, 3}));
  EXPECT_EQ(hierarchy.before(1, 2), 0);  // skips the rank without points
  EXPECT_EQ(hierarchy.after(1, 0), 2);
  EXPECT_EQ(hierarchy.before(1, 1), std::nullopt);
}

// Compares owners and neighbours with an exhaustive search.
TEST(TimeHierarchy, OwnersAndNeighboursMatchAnExhaustiveSearch) {
  std::mt19937 engine(7);
  const auto roll = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(engine);
  };
  for (int round = 0; round < 300; ++round) {
    const std::int64_t steps = roll(1, 40);
    const int ranks = static_cast<int>(roll(1, 9));
    HierarchyOptions options = with(static_cast<int>(roll(1, 4)), roll(2, 4), 1);
    options.offsets = {0};
    for (int rank = 1; rank < ranks; ++rank) options.offsets.push_back(roll(0, steps + 1));
    options.offsets.push_back(steps + 1);
    std::sort(options.offsets.begin(), options.offsets.end());
    const TimeHierarchy hierarchy(steps, ranks, options);
    for (int level = 0; level < hierarchy.levels(); ++level) {
      std::vector<int> owners;
      for (std::int64_t fine = 0; fine <= steps; fine += hierarchy.stride(level)) {
        int owner = 0;
        while (options.offsets[static_cast<std::size_t>(owner) + 1] <= fine) ++owner;
        owners.push_back(owner);
      }
      ASSERT_EQ(static_cast<std::int64_t>(owners.size()), hierarchy.steps(level) + 1);
      for (std::size_t i = 0; i < owners.size(); ++i) {
        const auto index = static_cast<std::int64_t>(i);
        EXPECT_EQ(hierarchy.owner(level, index), owners[i]);
        EXPECT_TRUE(hierarchy.points(level, owners[i]).contains(index));
        if (i > 0 && owners[i - 1] != owners[i]) {
          EXPECT_EQ(hierarchy.before(level, owners[i]), owners[i - 1]);
          EXPECT_EQ(hierarchy.after(level, owners[i - 1]), owners[i]);
        }
      }
      EXPECT_EQ(hierarchy.before(level, owners.front()), std::nullopt);
      EXPECT_EQ(hierarchy.after(level, owners.back()), std::nullopt);
      std::int64_t total = 0;
      for (int rank = 0; rank < ranks; ++rank) total += hierarchy.points(level, rank).size();
      EXPECT_EQ(total, hierarchy.steps(level) + 1);
    }
  }
}

TEST(TimeHierarchy, CoarseStepsHaveTheTimesOfFinePoints) {
  HierarchyOptions options = with(3, 4);
  options.t_begin = 1;
  options.t_end = 3;
  const TimeHierarchy hierarchy(32, 2, options);
  const Step step = hierarchy.step(1, 3, true);
  EXPECT_EQ(step.level, 1);
  EXPECT_EQ(step.fine_start, 12);
  EXPECT_EQ(step.fine_stop, 16);
  EXPECT_DOUBLE_EQ(step.t_start, 1.75);
  EXPECT_DOUBLE_EQ(step.t_stop, 2);
  EXPECT_TRUE(step.final);
  EXPECT_EQ(hierarchy.time(32), 3);
  EXPECT_EQ(hierarchy.place(2, 1).fine_index, 16);
  options.times = {0, 1, 4, 9, 16};
  EXPECT_EQ(TimeHierarchy(4, 1, options).step(0, 2).t_stop, 9);
}

TEST(TimeHierarchy, SignaturesDistinguishHierarchies) {
  const std::uint64_t usual = TimeHierarchy(32, 2, with(3, 4)).signature();
  EXPECT_EQ(usual, TimeHierarchy(32, 2, with(3, 4)).signature());
  HierarchyOptions other = with(3, 4);
  other.offsets = {0, 16, 33};
  EXPECT_NE(usual, TimeHierarchy(32, 2, other).signature());
  EXPECT_NE(usual, TimeHierarchy(32, 2, with(2, 4)).signature());
  EXPECT_NE(usual, TimeHierarchy(33, 2, with(3, 4)).signature());
  other = with(3, 4);
  other.t_end = 2;
  EXPECT_NE(usual, TimeHierarchy(32, 2, other).signature());
  other.t_end = 1;
  other.times.assign(33, 0);
  EXPECT_NE(usual, TimeHierarchy(32, 2, other).signature());
}

void expect_rejected(std::int64_t steps, int ranks, const HierarchyOptions& options, const std::string& why) {
  try {
    const TimeHierarchy hierarchy(steps, ranks, options);
    ADD_FAILURE() << "accepted; expected: " << why;
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr(why));
  }
}

TEST(TimeHierarchy, RejectsInvalidArguments) {
  expect_rejected(0, 1, {}, "steps must be at least 1, got 0");
  expect_rejected(4, 0, {}, "ranks must be at least 1, got 0");
  expect_rejected(4, 1, with(0, 2), "max_levels must be at least 1, got 0");
  expect_rejected(4, 1, with(2, 1), "coarsening factors must be at least 2, got 1 on level 0");
  expect_rejected(4, 1, with(2, 2, 0), "min_coarse_steps must be at least 1");
  HierarchyOptions options;
  options.offsets = {0, 3};
  expect_rejected(4, 2, options, "expected 3 offsets (one more than ranks), got 2");
  options.offsets = {0, 3, 4};
  expect_rejected(4, 2, options, "from 0 to the number of points (5), got 0 to 4");
  options.offsets = {0, 4, 3, 5};
  expect_rejected(4, 3, options, "must not decrease");
  options = {};
  options.times = {0, 1};
  expect_rejected(4, 1, options, "all 5 points, got 2");
}

}  // namespace
}  // namespace weft::multigrid
