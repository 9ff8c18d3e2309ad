// The decisions of IterationControl, driven with given biases.
#include "weft/layer_parallel/iteration_control.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weft::layer_parallel {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

ControlOptions with(bool adapt) {
  return {.adapt = adapt, .bound = 0.1, .every = 4, .more_iterations = 2, .more_relaxations = 1};
}

TEST(IterationControl, ComparesTheFirstBatchAndThenEveryFourth) {
  IterationControl control(with(true));
  std::vector<int> compared;
  for (int batch = 0; batch < 10; ++batch) {
    if (control.comparison_due()) {
      compared.push_back(batch);
      EXPECT_FALSE(control.note_comparison(0.05, 0.01));
    } else {
      control.note_batch(0.01);
    }
  }
  EXPECT_EQ(compared, (std::vector<int>{0, 4, 8}));
  EXPECT_EQ(control.setting(), ControlSetting());
}

TEST(IterationControl, AddsIterationsThenRelaxationsWhileTheBiasFalls) {
  IterationControl control(with(true));
  EXPECT_TRUE(control.note_comparison(0.8, std::nullopt));
  EXPECT_EQ(control.setting(), (ControlSetting{1, 0, false}));
  EXPECT_TRUE(control.comparison_due());  // at once
  EXPECT_TRUE(control.note_comparison(0.32, std::nullopt));
  EXPECT_EQ(control.setting(), (ControlSetting{2, 0, false}));
  EXPECT_TRUE(control.note_comparison(0.12, std::nullopt));
  EXPECT_EQ(control.setting(), (ControlSetting{2, 1, false}));
  EXPECT_FALSE(control.note_comparison(0.05, std::nullopt));
  EXPECT_EQ(control.setting(), (ControlSetting{2, 1, false}));
  EXPECT_FALSE(control.comparison_due());
}

TEST(IterationControl, SwitchesToExactPassesIfIterationsHelpTooLittle) {
  IterationControl control(with(true));
  control.note_comparison(0.8, std::nullopt);
  control.note_comparison(0.79, std::nullopt);  // two more additions cannot reach the bound
  EXPECT_EQ(control.setting(), (ControlSetting{2, 1, true}));
  EXPECT_FALSE(control.comparison_due());
}

TEST(IterationControl, SwitchesToExactPassesWithoutAdditions) {
  IterationControl control({.more_iterations = 0, .more_relaxations = 0});
  control.note_comparison(0.2, std::nullopt);
  EXPECT_TRUE(control.setting().exact);
}

TEST(IterationControl, TakesAdditionsBackIfThereIsRoom) {
  IterationControl control(with(true));
  control.note_comparison(0.8, std::nullopt);
  control.note_comparison(0.8, std::nullopt);
  ASSERT_TRUE(control.setting().exact);
  std::vector<ControlSetting> settings;
  for (int i = 0; i < 10; ++i) {
    control.note_comparison(0.02, std::nullopt);
    settings.push_back(control.setting());
  }
  EXPECT_EQ(settings[0], (ControlSetting{2, 1, true}));
  EXPECT_EQ(settings[1], (ControlSetting{2, 1, false}));
  EXPECT_EQ(settings[3], (ControlSetting{2, 0, false}));
  EXPECT_EQ(settings[5], (ControlSetting{1, 0, false}));
  EXPECT_EQ(settings[9], ControlSetting());
}

TEST(IterationControl, ExactPassesAreComparedLessAndLessOften) {
  IterationControl control({.bound = 0.1, .every = 2, .more_iterations = 0, .more_relaxations = 0});
  std::vector<int> compared;
  for (int batch = 0; batch < 100; ++batch) {
    if (!control.comparison_due()) {
      control.note_batch(std::nullopt);
      continue;
    }
    compared.push_back(batch);
    control.note_comparison(batch < 60 ? 0.5 : 0.01, std::nullopt);
  }
  // The comparison at 65 follows the return to solves at 64.
  EXPECT_EQ(compared, (std::vector<int>{0,  2,  6,  14, 30, 62, 64, 65, 67, 69, 71, 73, 75,
                                        77, 79, 81, 83, 85, 87, 89, 91, 93, 95, 97, 99}));
}

TEST(IterationControl, LessAccurateSolvesAreComparedAtOnceAndTriedLessOftenAfterAFailure) {
  IterationControl control(with(true));
  std::vector<int> tried;
  for (int comparison = 0; comparison < 40; ++comparison) {
    // One additional iteration suffices, and none is too few.
    const bool enough = control.setting().iterations > 0;
    if (!enough) tried.push_back(comparison);
    control.note_comparison(enough ? 0.01 : 0.2, 1.0);
    const bool returned = enough && control.setting().iterations == 0;
    EXPECT_EQ(control.comparison_due(), returned || !enough);
  }
  EXPECT_EQ(tried, (std::vector<int>{0, 3, 8, 17, 34}));
}

TEST(IterationControl, ABiasBetweenRoomAndBoundChangesNothing) {
  IterationControl control(with(true));
  control.note_comparison(0.8, std::nullopt);
  for (int i = 0; i < 5; ++i) control.note_comparison(0.06, std::nullopt);
  EXPECT_EQ(control.setting(), (ControlSetting{1, 0, false}));
}

TEST(IterationControl, AGrowingLastChangeCausesAComparison) {
  IterationControl control(with(true));
  control.note_comparison(0.05, 0.01);
  control.note_batch(0.015);
  EXPECT_DOUBLE_EQ(*control.bias(), 0.075);
  EXPECT_FALSE(control.comparison_due());
  control.note_batch(0.03);
  EXPECT_DOUBLE_EQ(*control.bias(), 0.15);
  EXPECT_TRUE(control.comparison_due());
}

TEST(IterationControl, ReportsWithoutChanges) {
  IterationControl control(with(false));
  EXPECT_TRUE(control.note_comparison(0.8, 0.1));
  EXPECT_EQ(control.setting(), ControlSetting());
  EXPECT_FALSE(control.comparison_due());  // known; the next regular comparison follows
  EXPECT_TRUE(control.note_comparison(kNaN, 0.1));
}

TEST(IterationControl, AGradientThatIsNotFiniteNeedsExactPasses) {
  for (const double bias : {kNaN, std::numeric_limits<double>::infinity()}) {
    IterationControl control(with(true));
    EXPECT_TRUE(control.note_comparison(bias, std::nullopt));
    EXPECT_TRUE(control.setting().exact);
  }
}

TEST(IterationControl, RejectsInvalidOptions) {
  for (const ControlOptions& options :
       {ControlOptions{.bound = 0}, ControlOptions{.bound = kNaN}, ControlOptions{.every = 0},
        ControlOptions{.more_iterations = -1}, ControlOptions{.more_relaxations = -1}, ControlOptions{.room = 1}}) {
    EXPECT_THROW(IterationControl{options}, std::invalid_argument);
  }
}

}  // namespace
}  // namespace weft::layer_parallel
