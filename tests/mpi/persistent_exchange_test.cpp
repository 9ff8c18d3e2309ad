// PersistentExchange: repeated, in chunks, several in flight at a time, with wrong lengths, and abandoned.
#include "weft/mpi/message/persistent_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/mpi/finish.h"
#include "tests/mpi/scoped_options.h"

namespace weft::mpi {
namespace {

constexpr int kTag = 5;
constexpr std::int64_t kBytes = 20;

class Persistent : public testing::TestWithParam<std::int64_t> {
 protected:
  // Sends to the next rank and receives from the previous one.
  struct Ring {
    std::vector<char> sent = std::vector<char>(24);
    std::vector<char> got = std::vector<char>(24);

    // Written in place, because the requests refer to this memory.
    void set(const std::vector<char>& content) { std::copy(content.begin(), content.end(), sent.begin()); }
  };

  [[nodiscard]] std::unique_ptr<PersistentExchange> around(const std::shared_ptr<Ring>& ring,
                                                           std::int64_t bytes = kBytes) const {
    return std::make_unique<PersistentExchange>(std::vector<Outgoing>{{next_, ring->sent.data(), bytes}},
                                                std::vector<Incoming>{{previous_, ring->got.data(), kBytes}}, kTag,
                                                comm_, ring);
  }
  // The data that rank `from` sends in round `round`.
  static std::vector<char> content(int from, int round) {
    std::vector<char> result(24);
    std::iota(result.begin(), result.end(), static_cast<char>(10 * from + round));
    return result;
  }
  void expect_round(const Ring& ring, int round) const {
    const auto expected = content(previous_, round);
    EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + kBytes, ring.got.begin())) << "round " << round;
  }

  const ScopedOptions options_{[](Options& options) { options.max_count = GetParam(); }};
  const UniqueComm comm_ = CommView::world().dup("persistent");
  const int next_ = (comm_.rank() + 1) % comm_.size();
  const int previous_ = (comm_.rank() + comm_.size() - 1) % comm_.size();
};

TEST_P(Persistent, StartsRepeatedly) {
  const auto ring = std::make_shared<Ring>();
  const auto exchange = around(ring);
  EXPECT_FALSE(exchange->under_way());
  EXPECT_TRUE(exchange->is_for(comm_, kTag));
  EXPECT_FALSE(exchange->is_for(comm_, kTag + 1));
  for (int round = 0; round < 5; ++round) {
    ring->set(content(comm_.rank(), round));
    exchange->start();
    EXPECT_TRUE(exchange->under_way());
    finish(*exchange);
    expect_round(*ring, round);
  }
}

TEST_P(Persistent, TwoInFlightKeepTheirOrder) {
  const auto first = std::make_shared<Ring>();
  const auto second = std::make_shared<Ring>();
  const auto one = around(first);
  const auto two = around(second);
  for (int round = 0; round < 4; round += 2) {
    first->set(content(comm_.rank(), round));
    second->set(content(comm_.rank(), round + 1));
    one->start();
    two->start();
    finish(*two);
    finish(*one);
    expect_round(*first, round);
    expect_round(*second, round + 1);
  }
}

TEST_P(Persistent, ReportsWrongLengthsAndTheNextExchangeWorks) {
  for (const std::int64_t wrong : {19, 21}) {  // the same number of chunks of 7 as for 20 bytes
    const auto ring = std::make_shared<Ring>();
    const auto exchange = around(ring, wrong);
    exchange->start();
    try {
      finish(*exchange);
      FAIL() << wrong << " bytes were accepted for 20";
    } catch (const LengthMismatch& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("rank " + std::to_string(previous_) + " sent"));
    }
    EXPECT_FALSE(exchange->under_way());
    const auto right = around(ring);
    ring->set(content(comm_.rank(), 1));
    right->start();
    finish(*right);
    expect_round(*ring, 1);
  }
}

// Rank 0 sends only after the other ranks have given up. Their memory must still be alive.
TEST_P(Persistent, AbandonedExchangeKeepsItsMemory) {
  const std::size_t before = Request::abandoned_count();
  auto ring = std::make_shared<Ring>();
  const std::weak_ptr<Ring> memory = ring;
  auto exchange = around(ring);
  ring->set(content(comm_.rank(), 3));
  if (comm_.rank() != 0) exchange->start();
  if (comm_.rank() == 1) {
    ring.reset();
    exchange.reset();  // rank 0 has not sent yet
    EXPECT_FALSE(memory.expired());
  }
  MPI_Barrier(comm_.handle());
  if (comm_.rank() == 0) exchange->start();
  if (exchange) finish(*exchange);
  if (ring) expect_round(*ring, 3);
  while (Request::abandoned_count() > before) {
  }
  EXPECT_EQ(memory.expired(), comm_.rank() == 1);
}

INSTANTIATE_TEST_SUITE_P(Chunks, Persistent, testing::Values(std::int64_t{1} << 30, std::int64_t{7}));

}  // namespace
}  // namespace weft::mpi
