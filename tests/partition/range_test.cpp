#include "weft/partition/range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/partition/invalid_argument.h"

namespace weft::partition {
namespace {

using testing::ElementsAre;

TEST(RangeTest, EndIsExclusive) {
  const Range range{2, 5};
  EXPECT_EQ(range.size(), 3);
  EXPECT_FALSE(range.empty());
  EXPECT_FALSE(range.contains(1));
  EXPECT_TRUE(range.contains(2));
  EXPECT_TRUE(range.contains(4));
  EXPECT_FALSE(range.contains(5));
  EXPECT_TRUE(Range{}.empty());
  EXPECT_FALSE((Range{3, 3}.contains(3)));
}

TEST(RangeTest, ReversedBoundsAreEmpty) {
  const Range range{5, 2};
  EXPECT_TRUE(range.empty());
  EXPECT_EQ(range.size(), 0);
}

TEST(RangeTest, IntersectReturnsTheCommonPart) {
  EXPECT_EQ((Range{0, 5}.intersect({3, 9})), (Range{3, 5}));
  EXPECT_EQ((Range{0, 9}.intersect({3, 5})), (Range{3, 5}));
  EXPECT_TRUE((Range{0, 3}.intersect({3, 5}).empty()));
  EXPECT_TRUE((Range{7, 9}.intersect({3, 5}).empty()));
  EXPECT_EQ((Range{7, 9}.intersect({3, 5}).size()), 0);
}

TEST(BalancedTest, RemainderGoesToTheFirstParts) {
  EXPECT_EQ(balanced(10, 3, 0), (Range{0, 4}));
  EXPECT_EQ(balanced(10, 3, 1), (Range{4, 7}));
  EXPECT_EQ(balanced(10, 3, 2), (Range{7, 10}));
  EXPECT_THAT(balanced_sizes(11, 3), ElementsAre(4, 4, 3));
}

TEST(BalancedTest, LastPartsAreEmptyIfItemsRunOut) {
  EXPECT_THAT(balanced_sizes(2, 5), ElementsAre(1, 1, 0, 0, 0));
  EXPECT_EQ(balanced(2, 5, 4), (Range{2, 2}));
}

TEST(BalancedTest, SplittingNothingGivesEmptyParts) {
  EXPECT_THAT(balanced_sizes(0, 3), ElementsAre(0, 0, 0));
  EXPECT_TRUE(balanced(0, 3, 2).empty());
}

TEST(BalancedTest, LargeCountsDoNotOverflow) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(balanced(kLargest, 3, 2).end, kLargest);
  EXPECT_EQ(balanced(kLargest, kLargest, kLargest - 1), (Range{kLargest - 1, kLargest}));
  EXPECT_EQ(owner(kLargest, 3, kLargest - 1), 2);
  EXPECT_EQ(owner(kLargest - 1, kLargest, kLargest - 2), kLargest - 2);
}

TEST(BalancedTest, SlicesCoverTheWholeInOrder) {
  for (std::int64_t total = 0; total <= 40; ++total) {
    for (std::int64_t parts = 1; parts <= 45; ++parts) {
      const auto sizes = balanced_sizes(total, parts);
      const auto starts = offsets(sizes);
      ASSERT_EQ(starts.back(), total);
      for (std::int64_t part = 0; part < parts; ++part) {
        const Range range = balanced(total, parts, part);
        ASSERT_EQ(range, (Range{starts[part], starts[part + 1]})) << total << " in " << parts << ", part " << part;
        ASSERT_LE(sizes.front() - range.size(), 1);
        for (std::int64_t index = range.begin; index < range.end; ++index) {
          ASSERT_EQ(owner(total, parts, index), part) << total << " in " << parts << ", index " << index;
        }
      }
    }
  }
}

TEST(OffsetsTest, AreRunningSumsOfTheSizes) {
  EXPECT_THAT(offsets({}), ElementsAre(0));
  EXPECT_THAT(offsets({3, 0, 2}), ElementsAre(0, 3, 3, 5));
}

TEST(ErrorsTest, StateTheValidRangeAndTheValue) {
  EXPECT_EQ(invalid_argument_text([] { (void)balanced(-1, 2, 0); }), "balanced: total must be at least 0, not -1");
  EXPECT_EQ(invalid_argument_text([] { (void)balanced(4, 0, 0); }), "balanced: parts must be at least 1, not 0");
  EXPECT_EQ(invalid_argument_text([] { (void)balanced(4, 2, 2); }), "balanced: index must be in [0, 2), not 2");
  EXPECT_EQ(invalid_argument_text([] { (void)balanced(4, 2, -1); }), "balanced: index must be in [0, 2), not -1");
  EXPECT_EQ(invalid_argument_text([] { (void)balanced_sizes(4, -3); }),
            "balanced_sizes: parts must be at least 1, not -3");
  EXPECT_EQ(invalid_argument_text([] { (void)owner(4, 2, 4); }), "owner: index must be in [0, 4), not 4");
  EXPECT_EQ(invalid_argument_text([] { (void)owner(0, 2, 0); }), "owner: index must be in [0, 0), not 0");
  EXPECT_EQ(invalid_argument_text([] { (void)offsets({1, -2}); }),
            "offsets: sizes must be at least 0, not -2 at position 1");
  EXPECT_THAT(invalid_argument_text([] { (void)offsets({std::numeric_limits<std::int64_t>::max(), 1}); }),
              testing::HasSubstr("must fit in 64 bits"));
}

}  // namespace
}  // namespace weft::partition
