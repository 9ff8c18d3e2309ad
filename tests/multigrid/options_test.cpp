// Options: rejected values, and signatures that distinguish different options.
#include "weft/multigrid/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

namespace weft::multigrid {
namespace {

using testing::HasSubstr;
using Change = std::function<void(Options&)>;

TEST(Options, DefaultsAreValid) { EXPECT_NO_THROW(validate({})); }

TEST(Options, RejectInvalidValues) {
  const std::vector<std::pair<Change, std::string>> wrong{
      {[](Options& o) { o.max_iterations = -1; }, "max_iterations must be at least 0, got -1"},
      {[](Options& o) { o.absolute_tolerance = -1e-3; }, "absolute_tolerance must be at least 0"},
      {[](Options& o) { o.relative_tolerance = std::numeric_limits<double>::quiet_NaN(); }, "relative_tolerance"},
      {[](Options& o) { o.relaxations.set(2, -1); }, "relaxations of level 2 must be at least 0"},
      {[](Options& o) { o.c_weight = 0; }, "c_weight must be above 0 and below 2"},
      {[](Options& o) { o.c_weight.set(1, 2.5); }, "c_weight of level 1"},
  };
  for (const auto& [change, why] : wrong) {
    Options options;
    change(options);
    try {
      validate(options);
      ADD_FAILURE() << "accepted; expected: " << why;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  }
}

TEST(Options, SignaturesDistinguishThem) {
  const std::vector<Change> changes{
      [](Options&) {},
      [](Options& o) { o.max_iterations = 3; },
      [](Options& o) { o.absolute_tolerance = 1; },
      [](Options& o) { o.relative_tolerance = 1; },
      [](Options& o) { o.temporal_norm = TemporalNorm::kInfinity; },
      [](Options& o) { o.compute_residual = false; },
      [](Options& o) { o.relaxations = 1; },
      [](Options& o) { o.relaxations.set(0, 1); },
      [](Options& o) { o.relaxations.set(1, 1); },
      [](Options& o) { o.c_weight = 0.5; },
      [](Options& o) { o.cycle = CycleKind::kF; },
      [](Options& o) { o.skip_downcycle = true; },
      [](Options& o) { o.relax_coarsest_only = true; },
      [](Options& o) { o.initial_guess = InitialGuess::kConstant; },
      [](Options& o) { o.final_sweep = FinalSweep::kF; },
  };
  std::set<std::uint64_t> signatures;
  for (const Change& change : changes) {
    Options options;
    change(options);
    signatures.insert(signature(options));
    EXPECT_EQ(signature(options), signature(Options(options)));
  }
  EXPECT_EQ(signatures.size(), changes.size());
}

// Settings without effect on messages may differ between ranks.
TEST(Options, StorageAndChecksMayDifferBetweenRanks) {
  Options options;
  options.storage = Storage::kCPoints;
  options.check_finite = true;
  EXPECT_EQ(signature(options), signature(Options{}));
}

}  // namespace
}  // namespace weft::multigrid
