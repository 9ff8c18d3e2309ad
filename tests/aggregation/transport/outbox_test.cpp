#include "weft/aggregation/transport/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace weft::aggregation {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

const Route kOne{Address{1, 1}};
const Route kTwo{Address{2, 2}};

void add(Outbox& out, int packets, std::size_t size, std::span<const Route> to = {&kOne, 1}) {
  for (int i = 0; i < packets; ++i) (void)out.add(to, size);
}

// Number and size of the packets of each run.
std::vector<std::pair<std::size_t, std::size_t>> runs(const Outbox& out, std::size_t most, std::size_t bytes) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  out.for_each_run(most, bytes, [&](std::span<const Route>, std::span<const Outbox::Packet> packets) {
    found.emplace_back(packets.size(), packets[0].size());
    for (const Outbox::Packet& packet : packets.first(packets.size() - 1)) EXPECT_EQ(packet.size(), packets[0].size());
    EXPECT_LE(packets.back().size(), packets[0].size());
  });
  return found;
}

TEST(Outbox, RunsHaveEqualLength) {
  Outbox out;
  add(out, 64, 1034);
  EXPECT_THAT(runs(out, 64, 65'507), ElementsAre(Pair(32, 1034), Pair(32, 1034)));  // 63 would fit
  add(out, 66, 1034);
  EXPECT_THAT(runs(out, 64, 65'507), ElementsAre(Pair(44, 1034), Pair(43, 1034), Pair(43, 1034)));
  EXPECT_THAT(runs(out, 1000, 1'000'000), ElementsAre(Pair(130, 1034)));
}

TEST(Outbox, SharedElementsCountInPart) {
  Outbox out;
  const auto add_shared = [&] { (void)out.add({&kOne, 1}, 600, 60'000); };
  add_shared();
  add_shared();
  EXPECT_FALSE(out.is_worth_sending());
  add_shared();
  EXPECT_TRUE(out.is_worth_sending());
  EXPECT_FALSE(out.is_full_message());
  add_shared();
  EXPECT_TRUE(out.is_full_message());
  EXPECT_THAT(runs(out, 64, 65'507), ElementsAre(Pair(4, 600))) << "one system call";
}

TEST(Outbox, ARunHasOneSizeAndTheSameReceivers) {
  Outbox out;
  const std::vector<Route> both{kOne, kTwo};
  add(out, 3, 100);
  add(out, 2, 200);
  add(out, 2, 200, both);
  add(out, 1, 200);
  EXPECT_THAT(runs(out, 64, 65'507), ElementsAre(Pair(3, 100), Pair(2, 200), Pair(2, 200), Pair(1, 200)));
}

TEST(Outbox, ARunEndsWithAShorterPacket) {
  Outbox out;
  add(out, 3, 200);
  add(out, 2, 100);
  add(out, 1, 0);
  add(out, 1, 200);
  add(out, 1, 100, {&kTwo, 1});
  EXPECT_THAT(runs(out, 64, 65'507), ElementsAre(Pair(4, 200), Pair(1, 100), Pair(1, 0), Pair(1, 200), Pair(1, 100)));
}

TEST(Outbox, JustifiesASystemCallIfItHasManyPacketsOrBytes) {
  Outbox out;
  add(out, 31, 100);
  EXPECT_FALSE(out.is_worth_sending());
  add(out, 1, 100);
  EXPECT_TRUE(out.is_worth_sending());
  out.clear();
  EXPECT_FALSE(out.is_worth_sending());
  add(out, 2, 16'384);
  EXPECT_TRUE(out.is_worth_sending());
}

TEST(Outbox, SendsOversizedAndEmptyPackets) {
  Outbox out;
  EXPECT_TRUE(runs(out, 64, 65'507).empty());
  add(out, 2, 300);
  EXPECT_THAT(runs(out, 64, 200), ElementsAre(Pair(1, 300), Pair(1, 300)));
  out.clear();
  add(out, 3, 0);
  EXPECT_THAT(runs(out, 2, 200), ElementsAre(Pair(2, 0), Pair(1, 0)));
}

}  // namespace
}  // namespace weft::aggregation
