// Loaders: shares of any split form the batch; prefetching preserves order, propagates exceptions, and stops.
#include "weft/data/loader.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "weft/data/synthetic.h"
#include "weft/memory/block_pool.h"
#include "weft/trace/recording.h"

namespace weft::data {
namespace {

const SyntheticOptions kSet{
    .picture = Picture::kShapes, .count = 47, .channels = 2, .height = 9, .width = 6, .classes = 6};

Loader loader(const PartOptions& options, const LoaderOptions& loading = {}) {
  SyntheticImages source(kSet);
  return {read_part(source, options), options, loading};
}

std::vector<Batch> epoch(Loader& loader, std::int64_t number, std::int64_t first = 0) {
  std::vector<Batch> batches;
  loader.start(number, first);
  while (auto batch = loader.next()) batches.push_back(*batch);
  return batches;
}

PartOptions options_for(const Split& split, std::int64_t rank) {
  return {.split = split, .rank = rank, .order = {.size = 10, .seed = 6}};
}

// Joins the shares of all ranks: tiles by column and row, then shards.
std::vector<Batch> assembled(const Split& split, std::int64_t number) {
  const auto rows = split.tiles().extents()[0], columns = split.tiles().extents()[1];
  std::vector<Batch> whole(5);
  std::vector<std::vector<at::Tensor>> images(5), labels(5);
  for (std::int64_t shard = 0; shard < split.shards(); ++shard) {
    std::vector<std::vector<at::Tensor>> bands(5);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<std::vector<at::Tensor>> tiles(5);
      for (std::int64_t column = 0; column < columns; ++column) {
        Loader mine = loader(options_for(split, (shard * rows + row) * columns + column));
        const auto batches = epoch(mine, number);
        for (std::size_t i = 0; i < 5; ++i) {
          tiles[i].push_back(batches.at(i).images);
          if (row == 0 && column == 0) labels[i].push_back(batches[i].labels);
        }
      }
      for (std::size_t i = 0; i < 5; ++i) bands[i].push_back(at::cat(tiles[i], 3));
    }
    for (std::size_t i = 0; i < 5; ++i) images[i].push_back(at::cat(bands[i], 2));
  }
  for (std::size_t i = 0; i < 5; ++i) whole[i] = {at::cat(images[i]), at::cat(labels[i])};
  return whole;
}

TEST(Loader, DoesNotDependOnTheSplit) {
  Loader one = loader(options_for(Split(), 0));
  const auto expected = epoch(one, 3);
  ASSERT_EQ(expected.size(), 5U);
  for (const Split& split : {Split::into_tiles(2, 2), Split::into_tiles(9, 1), Split::into_shards(3),
                             Split::into_shards(12), Split(2, partition::Grid({2, 2}))}) {
    const auto got = assembled(split, 3);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(at::equal(got[i].images, expected[i].images)) << split.describe();
      EXPECT_TRUE(at::equal(got[i].labels, expected[i].labels)) << split.describe();
    }
  }
}

TEST(Loader, FollowsTheBatchOrder) {
  SyntheticImages source(kSet);
  const LabelledImages all = read_all(source);
  Loader loader(ImagePart{all, at::arange(47), source.set(), partition::Box::whole({9, 6})}, options_for(Split(), 0));
  const BatchOrder order(47, options_for(Split(), 0).order);
  const auto batches = epoch(loader, 2);
  const auto numbers = order.epoch(2, order.lanes(1, 0));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const auto expected = all.select(at::tensor(at::IntArrayRef(numbers[i])));
    EXPECT_TRUE(at::equal(batches[i].images, unit_floats(expected.images)));
    EXPECT_TRUE(at::equal(batches[i].labels, expected.labels));
  }
}

TEST(Loader, ReportsThePositionOfAShare) {
  Loader last = loader(options_for(Split::into_shards(3), 2));  // lanes 7, 8 and 9
  const auto batches = epoch(last, 0);
  EXPECT_EQ(batches[0].first, 7);
  EXPECT_EQ(batches[0].whole_size, 10);
  EXPECT_EQ(batches[0].labels.numel(), 3);
  EXPECT_EQ(batches[4].number, 4);
  EXPECT_EQ(batches[4].whole_size, 7);
  EXPECT_EQ(batches[4].first, 7);
  EXPECT_EQ(batches[4].images.sizes(), (std::vector<std::int64_t>{0, 2, 9, 6}));
}

TEST(Loader, ConvertsElementTypes) {
  Loader bytes = loader(options_for(Split(), 0), {.type = at::kByte});
  Loader floats = loader(options_for(Split(), 0), {.type = at::kFloat});
  Loader doubles = loader(options_for(Split(), 0), {.type = at::kDouble});
  const at::Tensor raw = epoch(bytes, 0)[0].images;
  EXPECT_TRUE(at::equal(epoch(floats, 0)[0].images, raw.to(at::kFloat).div(255)));
  EXPECT_TRUE(at::equal(epoch(doubles, 0)[0].images, raw.to(at::kDouble).div(255)));
  EXPECT_THROW(loader(options_for(Split(), 0), {.type = at::kInt}), std::invalid_argument);
}

TEST(Loader, StartsInTheMiddleAndRestarts) {
  for (const std::int64_t prefetch : {0, 1, 3, 100}) {
    Loader one = loader(options_for(Split(), 0), {.prefetch = prefetch});
    EXPECT_FALSE(one.next().has_value());
    const auto all = epoch(one, 1);
    one.start(0);
    (void)one.next();  // abandons the epoch
    const auto rest = epoch(one, 1, 3);
    ASSERT_EQ(rest.size(), 2U);
    EXPECT_EQ(rest[0].number, 3);
    EXPECT_TRUE(at::equal(rest[0].images, all[3].images));
    EXPECT_FALSE(one.next().has_value());
    EXPECT_FALSE(one.next().has_value());
  }
}

// Released batches return to the pool; batches that the user still holds are not reused.
TEST(Loader, ReusesTheMemoryOfReleasedBatches) {
  const SyntheticOptions large{.picture = Picture::kBlobs, .count = 40, .channels = 3, .height = 32, .width = 32};
  SyntheticImages source(large);
  const PartOptions options{.order = {.size = 4}};
  Loader one(read_part(source, options), options, {.prefetch = 2});
  one.start(0);
  const at::Tensor held = one.next()->images;
  const at::Tensor copy = held.clone();
  const auto before = memory::BlockPool::of_process().statistics();
  while (one.next()) {
  }
  const auto after = memory::BlockPool::of_process().statistics();
  EXPECT_LE(after.misses - before.misses, 4);  // prefetched batches, the one in production and the one in use
  EXPECT_GE(after.hits - before.hits, 3);
  EXPECT_TRUE(at::equal(held, copy));
}

TEST(Loader, RecordsWaitsAndBatchesInTheTrace) {
  Loader one = loader(options_for(Split(), 0));
  trace::start_recording();
  (void)epoch(one, 0);
  trace::stop_recording();
  int waited = 0, made = 0;
  for (const trace::ThreadEvents& thread : trace::recorded()) {
    for (const trace::Event& event : thread.events) {
      waited += std::string(event.name) == "data/wait" ? 1 : 0;
      if (std::string(event.name) != "data/make batch") continue;
      ++made;
      EXPECT_EQ(thread.name, "data");
    }
  }
  EXPECT_EQ(waited, 6);
  EXPECT_EQ(made, 5);
}

TEST(Loader, RejectsAPartWithOtherOptions) {
  SyntheticImages source(kSet);
  const ImagePart part = read_part(source, options_for(Split::into_shards(2), 0));
  EXPECT_THROW(Loader(part, options_for(Split::into_shards(2), 1)), std::invalid_argument);
  EXPECT_THROW(Loader(part, options_for(Split(), 0)), std::invalid_argument);
}

std::function<std::optional<int>()> count_up(std::atomic<int>& made, int end) {
  return [&made, end]() -> std::optional<int> {
    if (made == end) return std::nullopt;
    return made++;
  };
}

TEST(Prefetcher, PreservesOrderAndRespectsItsDepth) {
  for (const std::size_t depth : {0, 1, 2, 7}) {
    std::atomic<int> made{0};
    Prefetcher<int> ahead(count_up(made, 100), depth);
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(ahead.next(), i);
      ASSERT_LE(made, i + 2 + static_cast<int>(depth));  // queued items and the one in production
    }
    EXPECT_EQ(ahead.next(), std::nullopt);
    EXPECT_EQ(ahead.next(), std::nullopt);
  }
}

TEST(Prefetcher, RethrowsAfterTheRemainingItems) {
  for (const std::size_t depth : {0, 1, 5}) {
    int made = 0;
    Prefetcher<int> ahead(
        [&]() -> std::optional<int> {
          if (made == 3) throw std::runtime_error("the fourth");
          return made++;
        },
        depth);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(ahead.next(), i);
    for (int again = 0; again < 2; ++again) {
      EXPECT_THAT([&] { ahead.next(); }, testing::ThrowsMessage<std::runtime_error>("the fourth"));
    }
  }
}

// The destructor does not hang with a full queue or before the first item.
TEST(Prefetcher, StopsInAnyState) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> made{0};
    Prefetcher<int> ahead(count_up(made, 1000), 1 + round % 3);
    for (int i = 0; i < round % 5; ++i) (void)ahead.next();
  }
}

}  // namespace
}  // namespace weft::data
