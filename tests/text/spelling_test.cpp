#include "weft/text/spelling.h"

#include <gtest/gtest.h>

namespace weft::text {
namespace {

TEST(Spelling, CountsASwapOfAdjacentLettersAsOneEdit) {
  EXPECT_EQ(edit_distance("stride", "stirde"), 1U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(Spelling, SuggestsOnlyNearNames) {
  EXPECT_EQ(nearest("num_epoch", {"batch_size", "num_epochs"}), "num_epochs");
  EXPECT_EQ(nearest("zzzzzz", {"batch_size", "num_epochs"}), std::nullopt);
  EXPECT_EQ(nearest("ab", {"ac", "ad"}), "ac");
  EXPECT_EQ(nearest("anything", {}), std::nullopt);
  EXPECT_EQ(nearest(std::string(100'000, 'x'), {"xx"}), std::nullopt);  // too long to compare
}

TEST(Spelling, FormatsSuggestionsAndLists) {
  EXPECT_EQ(suggestion("slot", {"slots", "workers"}), "; did you mean 'slots'?");
  EXPECT_EQ(suggestion("zzzz", {"slots"}), "");
  EXPECT_EQ(listed({"a", "b"}), "a, b");
  EXPECT_EQ(listed({}), "none");
}

}  // namespace
}  // namespace weft::text
