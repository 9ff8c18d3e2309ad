#include "weft/mpi/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "weft/mpi/communicator.h"
#include "weft/mpi/error.h"
#include "weft/mpi/fingerprint.h"

namespace weft::mpi {
namespace {

using testing::HasSubstr;
using Kind = Failure::Kind;

Communicator& world() { return *Communicator::world(); }

std::string text_of_rank(int rank) { return "failure of rank " + std::to_string(rank); }

// Whether the text is equal on all ranks.
bool same_everywhere(const std::string& text) {
  const auto result = world().agree(Direction::kForward, {.signature = Fingerprint(text).value()});
  return result.same_signature();
}

TEST(ShareFailure, ReturnsNothingIfAllRanksSucceed) {
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(share_failure(world(), "work", std::nullopt).has_value());
}

TEST(ShareFailure, OneFailingRankFailsAll) {
  for (int failing = 0; failing < world().size(); ++failing) {
    std::optional<Failure> mine;
    if (world().rank() == failing) mine = Failure{text_of_rank(failing)};
    const auto failure = share_failure(world(), "work", mine);
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->text, (failing == 0 ? "" : "rank " + std::to_string(failing) + ": ") + text_of_rank(failing));
    EXPECT_EQ(failure->kind, Kind::kOther);
  }
}

TEST(ShareFailure, DifferentFailuresAreListedByRank) {
  const auto failure = share_failure(world(), "work", Failure{text_of_rank(world().rank())});
  ASSERT_TRUE(failure.has_value());
  EXPECT_TRUE(same_everywhere(failure->text));
  for (int rank = 0; rank < world().size(); ++rank) EXPECT_THAT(failure->text, HasSubstr(text_of_rank(rank)));
  if (world().size() > 1) {
    EXPECT_THAT(failure->text, HasSubstr("rank 1: " + text_of_rank(1)));
  }
}

TEST(ShareFailure, EqualFailuresAppearOnce) {
  const auto failure = share_failure(world(), "work", Failure{"disk full"});
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->text, "disk full");
}

TEST(ShareFailure, IsAUserErrorOnlyIfAllFailuresAre) {
  const auto user = share_failure(world(), "work", Failure{"bad key", Kind::kUserError});
  ASSERT_TRUE(user.has_value());
  EXPECT_EQ(user->kind, Kind::kUserError);
  const bool last = world().rank() == world().size() - 1;
  const auto mixed = share_failure(world(), "work", Failure{"failed", last ? Kind::kOther : Kind::kUserError});
  ASSERT_TRUE(mixed.has_value());
  EXPECT_EQ(mixed->kind, Kind::kOther);
}

TEST(ShareFailure, AFailureWithoutTextIsAFailure) {
  const bool last = world().rank() == world().size() - 1;
  EXPECT_TRUE(share_failure(world(), "work", last ? std::optional(Failure{""}) : std::nullopt).has_value());
}

TEST(ShareFailure, KeepsLongAndNonAsciiTexts) {
  const std::string text = std::string(200'000, 'x') + "größer als 1 µm, 太長\n\tzero: " + std::string(1, '\0') + "end";
  const auto failure = share_failure(world(), "work", Failure{text});
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->text, text);
}

TEST(ShareFailure, DifferentSubjectsDisagree) {
  if (world().size() == 1) GTEST_SKIP() << "one rank cannot disagree";
  try {
    static_cast<void>(share_failure(world(), world().rank() == 1 ? "resume" : "data", std::nullopt));
    ADD_FAILURE() << "different subjects must not agree";
  } catch (const Disagreement& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1: resume"));
    EXPECT_THAT(error.what(), HasSubstr("rank 0"));
  }
  EXPECT_FALSE(share_failure(world(), "work", std::nullopt).has_value()) << "the communicator stays usable";
}

TEST(RequireAgreement, ReturnsMinimumAndMaximum) {
  const auto result = require_agreement(world(), {.signature = 1, .value = world().rank()}, "test");
  EXPECT_EQ(result.value_min, 0);
  EXPECT_EQ(result.value_max, world().size() - 1);
}

TEST(RequireAgreement, AFailedRankThrowsOnAllRanks) {
  const int last = world().size() - 1;
  try {
    require_agreement(world(), {.failed = world().rank() == last}, world().rank() == last ? "bad options" : "solve");
    ADD_FAILURE() << "a failed rank must end the agreement";
  } catch (const Disagreement& error) {
    EXPECT_TRUE(same_everywhere(error.what()));
    EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(last) + ": bad options"));
  }
}

TEST(DescribeByRank, CombinesEqualTexts) {
  EXPECT_EQ(describe_by_rank({"b", "a", "b"}, "; "), "rank 0, 2: b; rank 1: a");
  EXPECT_EQ(describe_by_rank({"", "a"}, "; "), "rank 1: a");
  EXPECT_EQ(describe_by_rank({"", "a"}, "; ", EmptyTexts::kInclude), "rank 0: ; rank 1: a");
  EXPECT_EQ(describe_by_rank({"", ""}, "; "), "");
}

TEST(Fingerprint, DependsOnValuesAndOrder) {
  EXPECT_EQ(Fingerprint("scan").add(3).add(0.5).value(), Fingerprint("scan").add(3).add(0.5).value());
  EXPECT_NE(Fingerprint().add(1).add(2).value(), Fingerprint().add(2).add(1).value());
  EXPECT_NE(Fingerprint("ab").add("c").value(), Fingerprint("a").add("bc").value());
  EXPECT_NE(Fingerprint("a").value(), Fingerprint(std::string_view("a\0", 2)).value());
  EXPECT_NE(Fingerprint().add(0).value(), Fingerprint().value());
  EXPECT_NE(Fingerprint().add(0.0).value(), Fingerprint().add(-0.0).value());
}

}  // namespace
}  // namespace weft::mpi
