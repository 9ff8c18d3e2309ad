// exchange(): pieces to the same rank, empty and uneven pieces, chunks, and several pieces between two ranks.
#include "weft/mpi/message/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/mpi/finish.h"
#include "tests/mpi/scoped_options.h"

namespace weft::mpi {
namespace {

constexpr int kTag = 5;

// Number of bytes from one rank to another; even ranks send nothing to odd ranks.
std::size_t bytes(int from, int to) {
  return from % 2 == 0 && to % 2 == 1 ? 0 : static_cast<std::size_t>(11 * from + to + 1);
}
std::vector<char> piece(int from, int to) {
  return std::vector<char>(bytes(from, to), static_cast<char>(16 * from + to));
}

class Exchange : public testing::TestWithParam<std::int64_t> {
 protected:
  const ScopedOptions options_{[](Options& options) { options.max_count = GetParam(); }};
  const UniqueComm comm_ = CommView::world().dup("exchange");
};

TEST_P(Exchange, AllRanksExchangeWithAllRanks) {
  const int me = comm_.rank();
  std::vector<std::vector<char>> sent, received;
  for (int peer = 0; peer < comm_.size(); ++peer) {
    sent.push_back(piece(me, peer));
    received.emplace_back(bytes(peer, me), '\x7f');
  }
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int peer = 0; peer < comm_.size(); ++peer) {
    auto& from = received[static_cast<std::size_t>(peer)];
    const auto& to = sent[static_cast<std::size_t>(peer)];
    outgoing.push_back({peer, to.data(), static_cast<std::int64_t>(to.size())});
    incoming.push_back({peer, from.data(), static_cast<std::int64_t>(from.size())});
  }
  finish(*exchange(outgoing, incoming, kTag, comm_, nullptr));
  for (int peer = 0; peer < comm_.size(); ++peer) EXPECT_EQ(received[static_cast<std::size_t>(peer)], piece(peer, me));
}

TEST_P(Exchange, PiecesBetweenTwoRanksKeepTheirOrder) {
  const int next = (comm_.rank() + 1) % comm_.size();
  const int previous = (comm_.rank() + comm_.size() - 1) % comm_.size();
  const std::vector<char> first(20, static_cast<char>(comm_.rank())), second(20, static_cast<char>(100 + comm_.rank()));
  std::vector<char> got_first(20), got_second(20);
  finish(*exchange({{next, first.data(), 20}, {next, second.data(), 20}},
                   {{previous, got_first.data(), 20}, {previous, got_second.data(), 20}}, kTag, comm_, nullptr));
  EXPECT_EQ(got_first, std::vector<char>(20, static_cast<char>(previous)));
  EXPECT_EQ(got_second, std::vector<char>(20, static_cast<char>(100 + previous)));
}

// The receiver expects 20 bytes. Before lengths were checked, a short piece left stale bytes unnoticed.
TEST_P(Exchange, ReportsWrongLengthsAndTheNextExchangeWorks) {
  if (comm_.size() == 1) GTEST_SKIP() << "needs another rank";
  const int next = (comm_.rank() + 1) % comm_.size();
  const int previous = (comm_.rank() + comm_.size() - 1) % comm_.size();
  const std::vector<char> sent(24, static_cast<char>(comm_.rank()));
  for (const std::int64_t wrong :
       {19, 21}) {  // the same number of chunks of 7 as for 20 bytes; otherwise a rank would wait
    std::vector<char> got(20);
    const auto operation = exchange({{next, sent.data(), wrong}}, {{previous, got.data(), 20}}, kTag, comm_, nullptr);
    try {
      finish(*operation);
      FAIL() << wrong << " bytes were accepted for 20";
    } catch (const LengthMismatch& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("rank " + std::to_string(previous) + " sent"));
    }
    finish(*exchange({{next, sent.data(), 20}}, {{previous, got.data(), 20}}, kTag, comm_, nullptr));
    EXPECT_EQ(got, std::vector<char>(20, static_cast<char>(previous)));
  }
}

TEST_P(Exchange, RejectsWrongLengthsToTheSameRank) {
  const std::vector<char> sent(3, 'a');
  std::vector<char> got(4, 'b');
  const auto start = [&] {
    (void)exchange({{comm_.rank(), sent.data(), 3}}, {{comm_.rank(), got.data(), 4}}, kTag, comm_, nullptr);
  };
  EXPECT_THROW(start(), LengthMismatch);
  EXPECT_EQ(got, std::vector<char>(4, 'b'));
}

INSTANTIATE_TEST_SUITE_P(Chunks, Exchange, testing::Values(std::int64_t{1} << 30, std::int64_t{7}));

}  // namespace
}  // namespace weft::mpi
