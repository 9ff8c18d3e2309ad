// Shuffled mini-batches: every item once, reproducible, different between epochs and seeds.
#include "weft/data/batches.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>

#include "weft/data/images.h"

namespace weft::data {
namespace {

std::vector<std::int64_t> sizes(const std::vector<at::Tensor>& batches) {
  std::vector<std::int64_t> result;
  for (const auto& batch : batches) result.push_back(batch.numel());
  return result;
}

std::vector<std::int64_t> order(std::int64_t count, std::int64_t epoch, std::uint64_t seed) {
  const at::Tensor all = at::cat(shuffled_batches(count, epoch, {.size = 7, .seed = seed}));
  return {all.const_data_ptr<std::int64_t>(), all.const_data_ptr<std::int64_t>() + all.numel()};
}

TEST(Batches, ContainEveryItemOnce) {
  for (const std::int64_t count : {1, 2, 49, 50, 51, 1003}) {
    auto numbers = order(count, 0, 5);
    std::sort(numbers.begin(), numbers.end());
    ASSERT_EQ(std::ssize(numbers), count);
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(numbers[i], i);
  }
}

TEST(Batches, HaveTheRequestedSizes) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(sizes(shuffled_batches(10, 0, {.size = 4})), ElementsAre(4, 4, 2));
  EXPECT_THAT(sizes(shuffled_batches(10, 0, {.size = 4, .drop_last = true})), ElementsAre(4, 4));
  EXPECT_THAT(sizes(shuffled_batches(8, 0, {.size = 4, .drop_last = true})), ElementsAre(4, 4));
  EXPECT_THAT(sizes(shuffled_batches(3, 0, {.size = 4})), ElementsAre(3));
  EXPECT_THAT(sizes(shuffled_batches(3, 0, {.size = 4, .drop_last = true})), IsEmpty());
  EXPECT_THAT(shuffled_batches(0, 0), IsEmpty());
}

TEST(Batches, AreReproducible) { EXPECT_EQ(order(1000, 3, 42), order(1000, 3, 42)); }

TEST(Batches, DifferBetweenEpochsAndSeeds) {
  std::set<std::vector<std::int64_t>> seen;
  const std::vector<std::uint64_t> seeds{0, 1, 2, 3, std::uint64_t{1} << 32, std::uint64_t{1} << 63, ~std::uint64_t{0}};
  for (const std::uint64_t seed : seeds) {
    for (std::int64_t epoch = 0; epoch < 20; ++epoch) seen.insert(order(200, epoch, seed));
  }
  EXPECT_EQ(seen.size(), seeds.size() * 20);
}

// tests/python/data/data_test.py expects the same numbers.
TEST(Batches, MatchRecordedOrders) {
  EXPECT_EQ(order(10, 0, 0), (std::vector<std::int64_t>{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}));
  EXPECT_EQ(order(10, 2, 7), (std::vector<std::int64_t>{8, 7, 3, 2, 5, 1, 6, 4, 9, 0}));
  EXPECT_EQ(order(10, 1, ~std::uint64_t{0}), (std::vector<std::int64_t>{5, 2, 9, 6, 0, 3, 1, 8, 7, 4}));
}

TEST(Batches, DoNotUseTheGlobalRandomState) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(11);
  const at::Tensor expected = at::rand({5});
  generator.set_current_seed(11);
  (void)shuffled_batches(100, 0);
  EXPECT_TRUE(at::equal(at::rand({5}), expected));
}

TEST(Batches, ShardsConcatenateToTheBatch) {
  for (const auto& batch : shuffled_batches(23, 1, {.size = 10, .seed = 3})) {
    for (const std::int64_t ranks : {1, 2, 3, 4, 12}) {
      std::vector<at::Tensor> parts;
      for (std::int64_t rank = 0; rank < ranks; ++rank) parts.push_back(shard(batch, ranks, rank));
      EXPECT_TRUE(at::equal(at::cat(parts), batch)) << ranks;
    }
  }
}

TEST(Batches, RejectInvalidArguments) {
  EXPECT_THROW((void)shuffled_batches(-1, 0), std::invalid_argument);
  EXPECT_THROW((void)shuffled_batches(10, -1), std::invalid_argument);
  EXPECT_THROW((void)shuffled_batches(10, 0, {.size = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace weft::data
