// Parts of a set, compared with slices of the whole set; memory use of a rank.
#include "weft/data/part.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

#include "tests/data/data_file_test.h"
#include "weft/data/idx_images.h"
#include "weft/data/synthetic.h"
#include "weft/partition/range.h"

namespace weft::data {
namespace {

SyntheticOptions shapes(std::int64_t count) {
  return {.picture = Picture::kShapes, .count = count, .channels = 2, .height = 11, .width = 7, .classes = 6};
}

LabelledImages everything(std::int64_t count) {
  SyntheticImages source(shapes(count));
  return read_all(source);
}

ImagePart part_of(std::int64_t count, const PartOptions& options) {
  SyntheticImages source(shapes(count));
  return read_part(source, options);
}

// Selects the part with torch operations.
at::Tensor expected_tile(const ImagePart& part, const at::Tensor& whole) {
  const auto& rows = part.tile.ranges[0];
  const auto& columns = part.tile.ranges[1];
  return whole.index_select(0, part.numbers)
      .narrow(2, rows.begin, rows.size())
      .narrow(3, columns.begin, columns.size());
}

TEST(Part, CutsTilesOfAnyGrid) {
  const LabelledImages whole = everything(9);
  for (const auto& grid : std::vector<std::vector<std::int64_t>>{{1, 1}, {2, 2}, {3, 2}, {1, 5}, {11, 7}, {13, 1}}) {
    std::int64_t pixels = 0;
    const Split split(1, partition::Grid(grid));
    for (std::int64_t rank = 0; rank < split.ranks(); ++rank) {
      const ImagePart part = part_of(9, {.split = split, .rank = rank});
      EXPECT_TRUE(at::equal(part.kept.images, expected_tile(part, whole.images)));
      EXPECT_TRUE(at::equal(part.kept.labels, whole.labels));
      EXPECT_EQ(part.tile.ranges[0], partition::balanced(11, grid[0], rank / grid[1]));
      EXPECT_EQ(part.tile.ranges[1], partition::balanced(7, grid[1], rank % grid[1]));
      pixels += part.kept.images.numel();
    }
    EXPECT_EQ(pixels, whole.images.numel());  // every pixel is in exactly one tile
  }
}

TEST(Part, ShardsOwnEveryImageOnce) {
  const LabelledImages whole = everything(23);
  for (const std::int64_t ranks : {1, 2, 3, 5, 12}) {
    std::vector<at::Tensor> numbers;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const ImagePart part = part_of(23, {.split = Split::into_shards(ranks), .rank = rank, .order = {.size = 10}});
      EXPECT_TRUE(at::equal(part.kept.images, whole.images.index_select(0, part.numbers)));
      EXPECT_TRUE(at::equal(part.kept.labels, whole.labels.index_select(0, part.numbers)));
      EXPECT_EQ(part.whole.count, 23);
      numbers.push_back(part.numbers);
    }
    const at::Tensor all = std::get<0>(at::cat(numbers).sort());
    EXPECT_EQ(all.numel(), 23);
    EXPECT_EQ(all.diff().eq(1).sum().item<std::int64_t>(), 22);
  }
}

TEST(Part, CombinesShardsAndTiles) {
  const LabelledImages whole = everything(20);
  const Split split(2, partition::Grid({2, 1}));
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const ImagePart part = part_of(20, {.split = split, .rank = rank, .order = {.size = 10}});
    EXPECT_EQ(part.kept.size(), 10);
    EXPECT_EQ(part.tile.ranges[0], partition::balanced(11, 2, rank % 2));
    EXPECT_TRUE(at::equal(part.kept.images, expected_tile(part, whole.images)));
    const ImagePart other = part_of(20, {.split = split, .rank = rank ^ 1, .order = {.size = 10}});
    EXPECT_TRUE(at::equal(part.numbers, other.numbers));  // tiles of one shard contain the same images
  }
}

TEST(Part, SamplesDoNotDependOnTheSplit) {
  const auto labels = [](const Split& split) {
    std::vector<at::Tensor> all(60);
    for (std::int64_t rank = 0; rank < split.ranks(); ++rank) {
      const ImagePart part =
          part_of(200, {.split = split, .rank = rank, .order = {.size = 10}, .sample_pct = 30, .sample_seed = 4});
      EXPECT_EQ(part.whole.count, 60);
      for (std::int64_t i = 0; i < part.kept.size(); ++i) {
        all[part.numbers[i].item<std::int64_t>()] = part.kept.labels.narrow(0, i, 1);
      }
    }
    return at::cat(all);
  };
  EXPECT_TRUE(at::equal(labels(Split()), labels(Split::into_shards(3))));
  EXPECT_TRUE(at::equal(labels(Split()), labels(Split::into_tiles(2, 2))));
}

TEST(Part, MayBeEmpty) {
  EXPECT_EQ(part_of(0, {.split = Split::into_shards(2), .rank = 1}).kept.size(), 0);
  const ImagePart none = part_of(2, {.split = Split::into_shards(3), .rank = 2, .order = {.size = 3}});
  EXPECT_EQ(none.kept.images.sizes(), (std::vector<std::int64_t>{0, 2, 11, 7}));
}

TEST(Part, RejectsInvalidOptions) {
  EXPECT_THROW(part_of(4, {.split = Split::into_shards(2), .rank = 2}), std::invalid_argument);
  EXPECT_THROW(part_of(4, {.rank = -1}), std::invalid_argument);
  EXPECT_THROW(part_of(4, {.sample_pct = 0}), std::invalid_argument);
  EXPECT_THROW(Split(0, partition::Grid({1, 1})), std::invalid_argument);
  EXPECT_THROW(Split(1, partition::Grid({1, 1, 1})), std::invalid_argument);
}

class Memory : public DataFileTest {
 protected:
  // Runs `work` in a child process and returns the growth of its peak memory. A child excludes memory that earlier
  // tests freed.
  static std::int64_t peak_growth(const std::function<void()>& work) {
    int ends[2];
    if (pipe(ends) != 0) return -1;
    if (fork() == 0) {
      (void)part_of(3, {});  // excludes allocations of the first use of torch
      const std::int64_t before = peak();
      work();
      const std::int64_t grown = peak() - before;
      (void)!write_end(ends[1], grown);
      _exit(0);
    }
    std::int64_t grown = -1;
    (void)!::read(ends[0], &grown, sizeof(grown));
    close(ends[0]);
    close(ends[1]);
    wait(nullptr);
    return grown;
  }

 private:
  static std::int64_t peak() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return std::int64_t{usage.ru_maxrss} * 1024;
  }
  static bool write_end(int end, std::int64_t value) { return ::write(end, &value, sizeof(value)) == sizeof(value); }
};

TEST_F(Memory, RankHoldsOnlyItsPart) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers use additional memory";
#endif
  constexpr std::uint32_t kCount = 50'000;
  constexpr std::int64_t kWhole = std::int64_t{kCount} * 32 * 32;  // 51 MB
  write("images", idx(0x08, {kCount, 32, 32}, Bytes(kWhole, 3)));
  write("labels", idx(0x08, {kCount}, Bytes(kCount, 1)));
  const auto growth = [&](const Split& split) {
    return peak_growth([&] {
      IdxImages source(folder() / "images", folder() / "labels", 10);
      (void)read_part(source, {.split = split});
    });
  };
  // Allowance for image indices, temporarily of the whole set, and for the allocator.
  constexpr std::int64_t kNumbers = 8 * kCount * 8 + 4'000'000;
  EXPECT_GT(growth(Split()), kWhole);  // checks the measurement itself
  EXPECT_LT(growth(Split::into_tiles(4, 2)), kWhole / 8 + kNumbers);
  EXPECT_LT(growth(Split::into_shards(10)), kWhole / 10 + kNumbers);
  EXPECT_LT(growth({2, partition::Grid({2, 2})}), kWhole / 8 + kNumbers);
}

}  // namespace
}  // namespace weft::data
