#include "weft/mpi/message/text_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/mpi/scoped_options.h"
#include "weft/mpi/agreement.h"
#include "weft/mpi/error.h"
#include "weft/mpi/message/message_channel.h"

namespace weft::mpi {
namespace {

Communicator& world() { return *Communicator::world(); }

// Empty on rank 0, long and with all byte values elsewhere.
std::string text_of(int rank) {
  std::string text;
  for (int i = 0; i < 50'000 * rank; ++i) text.push_back(static_cast<char>(i % 256));
  return text;
}

TEST(AllGatherText, ReturnsTheTextsInRankOrder) {
  const auto texts = all_gather_text(world(), text_of(world().rank()), "test");
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(world().size()));
  for (int rank = 0; rank < world().size(); ++rank) EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank));
}

TEST(AllGatherText, AcceptsOnlyEmptyTexts) {
  const auto texts = all_gather_text(world(), "", "test");
  EXPECT_EQ(texts, std::vector<std::string>(static_cast<std::size_t>(world().size())));
}

TEST(AllGatherText, SplitsTextsAboveTheLargestCount) {
  const ScopedOptions small([](Options& options) { options.max_count = 1000; });
  const auto texts = all_gather_text(world(), text_of(world().rank()), "test");
  for (int rank = 0; rank < world().size(); ++rank) EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank));
}

TEST(BroadcastText, SendsTheTextOfTheRoot) {
  for (int root = 0; root < world().size(); ++root) {
    const std::string expected = root == 0 ? "größer 太長" : text_of(root);
    const std::string mine = world().rank() == root ? expected : "ignored";
    EXPECT_EQ(broadcast_text(world(), mine, root, "test"), expected);
  }
  EXPECT_EQ(broadcast_text(world(), "", 0, "test"), "");
}

TEST(BroadcastText, DifferentRootsDisagree) {
  if (world().size() == 1) GTEST_SKIP() << "one rank cannot disagree";
  const int root = world().rank() == 0 ? 0 : 1;
  EXPECT_THROW(static_cast<void>(broadcast_text(world(), "text", root, "test")), Disagreement);
  EXPECT_EQ(broadcast_text(world(), "text", 0, "test"), "text");
}

TEST(MessageChannel, SendsTextsValuesAndBytesInOrder) {
  const auto channel = MessageChannel::open(world(), "test");
  if (channel.rank() != 0) {
    channel.send_text(text_of(channel.rank()), 0);
    channel.send_text("", 0);
    channel.send_value(4711 + channel.rank(), 0);
    EXPECT_EQ(channel.receive(5, 0), "known");
    return;
  }
  const std::string known = "known";
  for (int rank = channel.size() - 1; rank > 0; --rank) {
    EXPECT_EQ(channel.receive_text(rank), text_of(rank));
    EXPECT_EQ(channel.receive_text(rank), "");
    EXPECT_EQ(channel.receive_value<int>(rank), 4711 + rank);
    channel.send(std::as_bytes(std::span(known)), rank, nullptr);
  }
}

TEST(MessageChannel, DifferentOperationsDisagree) {
  if (world().size() == 1) GTEST_SKIP() << "one rank cannot disagree";
  EXPECT_THROW(static_cast<void>(MessageChannel::open(world(), world().rank() == 0 ? "clocks" : "trace")),
               Disagreement);
}

TEST(MessageChannel, ATimeoutInterruptsTheOtherRanks) {
  if (world().size() == 1) GTEST_SKIP() << "needs a peer";
  const auto channel = MessageChannel::open(world(), "test");
  if (world().rank() == 0) {
    const ScopedOptions soon([](Options& options) { options.timeout = std::chrono::milliseconds(200); });
    EXPECT_THROW(static_cast<void>(channel.receive_text(1)), TimeoutError);
  } else {
    EXPECT_THROW(static_cast<void>(channel.receive_text(0)), PeerLost);
  }
  EXPECT_FALSE(share_failure(world(), "after the timeout", std::nullopt).has_value());
}

}  // namespace
}  // namespace weft::mpi
