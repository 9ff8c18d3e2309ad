// Batch orders: every image once, independent of the number of ranks, and a fixed set of images per shard.
#include "weft/data/batch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>

#include "weft/data/random_stream.h"

namespace weft::data {
namespace {

using Numbers = std::vector<std::int64_t>;
using testing::ElementsAre;

Numbers sorted(Numbers numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Numbers joined(const std::vector<Numbers>& parts) {
  Numbers all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<Numbers> whole_epoch(const BatchOrder& order, std::int64_t epoch) {
  return order.epoch(epoch, order.lanes(1, 0));
}

TEST(BatchOrder, ContainsEveryImageOnce) {
  for (const std::int64_t count : {0, 1, 2, 9, 10, 11, 57}) {
    for (const bool shuffle : {false, true}) {
      const BatchOrder order(count, {.size = 10, .seed = 3, .shuffle = shuffle});
      const auto all = sorted(joined(whole_epoch(order, 4)));
      ASSERT_EQ(std::ssize(all), count);
      for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(all[i], i);
    }
  }
}

TEST(BatchOrder, LastBatchIsSmallerOrDropped) {
  const BatchOrder all(23, {.size = 10});
  EXPECT_EQ(all.batches(), 3);
  EXPECT_EQ(all.batch_size(0), 10);
  EXPECT_EQ(all.batch_size(2), 3);
  EXPECT_EQ(whole_epoch(all, 0)[2].size(), 3U);
  const BatchOrder full(23, {.size = 10, .drop_last = true});
  EXPECT_EQ(full.batches(), 2);
  EXPECT_EQ(whole_epoch(full, 0).size(), 2U);
  EXPECT_EQ(BatchOrder(20, {.size = 10, .drop_last = true}).batches(), 2);
  EXPECT_EQ(BatchOrder(3, {.size = 10, .drop_last = true}).batches(), 0);
}

TEST(BatchOrder, KeepsTheOrderWithoutShuffling) {
  const BatchOrder order(7, {.size = 3, .shuffle = false});
  EXPECT_THAT(whole_epoch(order, 5), ElementsAre(Numbers{0, 1, 2}, Numbers{3, 4, 5}, Numbers{6}));
}

// The concatenated parts of any number of ranks equal the batch of one rank.
TEST(BatchOrder, DoesNotDependOnTheNumberOfRanks) {
  for (const std::int64_t count : {0, 5, 57, 100}) {
    const BatchOrder order(count, {.size = 10, .seed = 8});
    for (const std::int64_t ranks : {1, 2, 3, 4, 10, 13}) {
      for (const std::int64_t epoch : {0, 1}) {
        std::vector<Numbers> batches(static_cast<std::size_t>(order.batches()));
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          const auto mine = order.epoch(epoch, order.lanes(ranks, rank));
          for (std::size_t i = 0; i < batches.size(); ++i) {
            batches[i].insert(batches[i].end(), mine[i].begin(), mine[i].end());
          }
        }
        EXPECT_EQ(batches, whole_epoch(order, epoch)) << count << " images, " << ranks << " ranks";
      }
    }
  }
}

TEST(BatchOrder, RankOwnsTheSameImagesInEveryEpoch) {
  const BatchOrder order(103, {.size = 10, .seed = 1});
  std::size_t most = 0;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const auto lanes = order.lanes(4, rank);
    const auto owned = order.owned(lanes);
    EXPECT_TRUE(std::is_sorted(owned.begin(), owned.end()));
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) EXPECT_EQ(sorted(joined(order.epoch(epoch, lanes))), owned);
    most = std::max(most, owned.size());
  }
  EXPECT_LE(most, 33U);  // three lanes of ten, each of ten or eleven images
}

TEST(BatchOrder, DiffersBetweenEpochsAndSeeds) {
  std::set<std::vector<Numbers>> seen;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    const BatchOrder order(200, {.size = 10, .seed = seed});
    for (std::int64_t epoch = 0; epoch < 20; ++epoch) seen.insert(whole_epoch(order, epoch));
  }
  EXPECT_EQ(seen.size(), 80U);
}

// tests/python/data/data_test.py expects the same numbers.
TEST(BatchOrder, MatchesRecordedOrders) {
  const BatchOrder one(10, {.size = 3, .seed = 7});
  EXPECT_THAT(whole_epoch(one, 2), ElementsAre(Numbers{9, 2, 0}, Numbers{3, 8, 6}, Numbers{4, 7, 5}, Numbers{1}));
  const BatchOrder two(11, {.size = 4, .seed = ~std::uint64_t{0}});
  EXPECT_THAT(whole_epoch(two, 0), ElementsAre(Numbers{1, 6, 5, 0}, Numbers{2, 10, 3, 9}, Numbers{7, 8, 4}));
  EXPECT_THAT(two.owned(two.lanes(3, 0)), ElementsAre(1, 2, 6, 7, 8, 10));
  EXPECT_THAT(sample(30, 20, 5), ElementsAre(0, 5, 12, 19, 23, 26));
}

// Chi-square test of how often each image is in the first batch (99 degrees of freedom; 159 exceeds the 0.9999
// quantile).
TEST(BatchOrder, DistributesImagesUniformly) {
  std::map<std::int64_t, int> times;
  constexpr int kEpochs = 4000;
  const BatchOrder order(100, {.size = 10, .seed = 5});
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto batches = whole_epoch(order, epoch);
    for (const std::int64_t image : batches[0]) ++times[image];
  }
  double chi = 0;
  for (std::int64_t i = 0; i < 100; ++i) chi += std::pow(times[i] - kEpochs / 10.0, 2) / (kEpochs / 10.0);
  EXPECT_LT(chi, 159);
}

TEST(BatchOrder, RejectsInvalidArguments) {
  EXPECT_THROW(BatchOrder(-1, {}), std::invalid_argument);
  EXPECT_THROW(BatchOrder(10, {.size = 0}), std::invalid_argument);
  EXPECT_THROW((void)BatchOrder(10, {}).epoch(-1, {0, 10}), std::invalid_argument);
  EXPECT_THROW((void)BatchOrder(10, {}).lanes(3, 3), std::invalid_argument);
  EXPECT_THROW((void)BatchOrder(10, {}).epoch(0, {-1, 10}), std::invalid_argument);
  EXPECT_THROW((void)BatchOrder(10, {.size = 4}).owned({0, 5}), std::invalid_argument);
}

TEST(Sample, AcceptsPercentagesAndFractions) {
  for (const auto& [percent, expected] : std::map<double, std::size_t>{
           {100, 5000}, {10, 500}, {0.1, 500}, {1, 50}, {0.999, 4995}, {29, 1450}, {0.29, 1450}, {50.5, 2525}}) {
    EXPECT_EQ(sample(5000, percent, 0).size(), expected) << percent;
  }
  EXPECT_EQ(sample(3, 1, 0).size(), 1U);  // a sample of a non-empty set is never empty
  EXPECT_TRUE(sample(0, 50, 0).empty());
}

TEST(Sample, IsAscendingDistinctAndDependsOnTheSeed) {
  const auto one = sample(1000, 10, 7);
  EXPECT_TRUE(std::is_sorted(one.begin(), one.end()));
  EXPECT_EQ(std::set<std::int64_t>(one.begin(), one.end()).size(), 100U);
  EXPECT_EQ(sample(1000, 10, 7), one);
  EXPECT_NE(sample(1000, 10, 8), one);
}

TEST(Sample, RejectsInvalidPercentages) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double percent : {0.0, -1.0, 100.5, nan, std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW((void)sample(10, percent, 0), std::invalid_argument) << percent;
  }
}

TEST(RandomStream, HasUniformAndNormalMoments) {
  RandomStream random(3, {1, 2});
  double sum = 0, square = 0, normal = 0, normal_square = 0;
  constexpr int kDraws = 200'000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = random.uniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u;
    square += u * u;
    const double n = random.normal();
    normal += n;
    normal_square += n * n;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.004);  // six standard errors
  EXPECT_NEAR(square / kDraws, 1.0 / 3, 0.004);
  EXPECT_NEAR(normal / kDraws, 0, 0.014);
  EXPECT_NEAR(normal_square / kDraws, 1, 0.02);
}

}  // namespace
}  // namespace weft::data
