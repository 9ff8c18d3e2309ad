// Boxes, cuts, grids and tilings, checked cell by cell.
#include "weft/partition/tiling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/partition/invalid_argument.h"

namespace weft::partition {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Sizes = std::vector<std::int64_t>;

// Every list of `parts` sizes that sum to `total`.
void for_each_split(std::int64_t total, std::int64_t parts, Sizes& sizes,
                    const std::function<void(const Sizes&)>& visit) {
  if (parts == 1) {
    sizes.push_back(total);
    visit(sizes);
    sizes.pop_back();
    return;
  }
  for (std::int64_t first = 0; first <= total; ++first) {
    sizes.push_back(first);
    for_each_split(total - first, parts - 1, sizes, visit);
    sizes.pop_back();
  }
}

TEST(BoxTest, HasVolumeIntersectionAndContainment) {
  const Box box{{{0, 4}, {2, 5}}};
  EXPECT_EQ(box.volume(), 12);
  EXPECT_THAT(box.sizes(), ElementsAre(4, 3));
  EXPECT_EQ(box.intersect({{{2, 9}, {0, 3}}}), (Box{{{2, 4}, {2, 3}}}));
  EXPECT_TRUE(box.intersect({{{4, 9}, {0, 3}}}).empty());
  EXPECT_TRUE(box.contains({{{0, 4}, {2, 5}}}));
  EXPECT_FALSE(box.contains({{{-1, 4}, {2, 5}}}));
  EXPECT_TRUE(box.contains({{{70, 70}, {2, 5}}})) << "an empty box lies inside every box";
  EXPECT_EQ(Box{}.volume(), 1);
  EXPECT_EQ(box.describe(), "[0, 4) x [2, 5)");
}

TEST(CutsTest, FindsTheOwnerInEverySplit) {
  for (std::int64_t total = 0; total <= 6; ++total) {
    for (std::int64_t parts = 1; parts <= 4; ++parts) {
      Sizes scratch;
      for_each_split(total, parts, scratch, [&](const Sizes& sizes) {
        const Cuts cuts = Cuts::of_sizes(sizes);
        ASSERT_EQ(cuts.parts(), parts);
        ASSERT_EQ(cuts.total(), total);
        ASSERT_EQ(cuts.sizes(), sizes);
        ASSERT_EQ(cuts.is_balanced(), sizes == balanced_sizes(total, parts));
        for (std::int64_t i = 0; i < total; ++i) ASSERT_TRUE(cuts.part(cuts.owner(i)).contains(i));
      });
    }
  }
}

TEST(GridTest, RanksAndCoordinatesAreInverse) {
  for (const Sizes& extents : {Sizes{1}, Sizes{5}, Sizes{2, 3}, Sizes{3, 1, 2}}) {
    const Grid grid(extents);
    for (std::int64_t rank = 0; rank < grid.size(); ++rank) EXPECT_EQ(grid.rank(grid.coordinates(rank)), rank);
  }
  EXPECT_THAT(Grid({2, 3}).coordinates(4), ElementsAre(1, 1)) << "row-major order";
}

TEST(TilingTest, TilesCoverEveryCellOnce) {
  for (const Sizes& extents : {Sizes{1, 1}, Sizes{4, 1}, Sizes{2, 3}, Sizes{3, 3}}) {
    for (std::int64_t height = 0; height <= 7; ++height) {
      const Tiling tiling = Tiling::balanced(Grid(extents), {height, 5});
      std::vector<int> owners(static_cast<std::size_t>(height * 5));
      for (const Box& tile : tiling.tiles()) {
        for (std::int64_t y = tile.ranges[0].begin; y < tile.ranges[0].end; ++y) {
          for (std::int64_t x = tile.ranges[1].begin; x < tile.ranges[1].end; ++x) {
            ++owners[static_cast<std::size_t>(y * 5 + x)];
          }
        }
      }
      ASSERT_THAT(owners, testing::Each(1));
    }
  }
}

TEST(TilingTest, ErrorsStateTheExpectedValue) {
  EXPECT_EQ(invalid_argument_text([] { (void)Grid({}); }), "Grid: at least one dimension is required");
  EXPECT_EQ(invalid_argument_text([] { (void)Grid({2, 0}); }), "Grid: expected extents of at least 1, got 2 x 0");
  EXPECT_EQ(invalid_argument_text([] { (void)Grid({2, 2}).coordinates(4); }), "Grid: rank must be in [0, 4), not 4");
  EXPECT_EQ(invalid_argument_text([] { (void)Cuts::of_sizes({}); }), "Cuts: at least one part is required");
  EXPECT_THAT(invalid_argument_text([] { (void)Cuts::of_sizes({2, -1}); }), HasSubstr("at least 0"));
  EXPECT_EQ(invalid_argument_text([] { (void)Cuts::of_sizes({2, 1}).owner(3); }),
            "Cuts: index must be in [0, 3), not 3");
  EXPECT_THAT(invalid_argument_text([] { (void)Tiling::balanced(Grid({2, 2}), {7}); }),
              HasSubstr("a grid of 2 x 2 expects a field of 2 dimensions, got 1"));
  EXPECT_THAT(invalid_argument_text([] { (void)Tiling(Grid({2}), {Cuts::balanced(9, 3)}); }),
              HasSubstr("a grid of 2 needs 2 parts in dimension 0, got 3"));
}

}  // namespace
}  // namespace weft::partition
