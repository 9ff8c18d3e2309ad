// Exchanges of pieces: to oneself, empty, uneven, in chunks, and several between the same two ranks.
#include "weft/mpi/exchange.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/mpi/scoped_options.h"

namespace weft::mpi {
namespace {

constexpr int kTag = 5;

void finish(Operation& operation) {
  while (!operation.advance()) {
  }
}

// How many bytes one rank sends another; nothing from even to odd ranks.
std::size_t bytes(int from, int to) {
  return from % 2 == 0 && to % 2 == 1 ? 0 : static_cast<std::size_t>(11 * from + to + 1);
}
std::vector<char> piece(int from, int to) {
  return std::vector<char>(bytes(from, to), static_cast<char>(16 * from + to));
}

class Exchange : public testing::TestWithParam<std::int64_t> {
 protected:
  const ScopedOptions options_{[](Options& options) { options.max_count = GetParam(); }};
  const Communicator comm_ = CommunicatorView::world().dup("exchange");
};

TEST_P(Exchange, EverybodyWithEverybody) {
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
  finish(*exchange(outgoing, incoming, kTag, comm_));
  for (int peer = 0; peer < comm_.size(); ++peer) EXPECT_EQ(received[static_cast<std::size_t>(peer)], piece(peer, me));
}

TEST_P(Exchange, PiecesBetweenTwoRanksKeepTheirOrder) {
  const int next = (comm_.rank() + 1) % comm_.size();
  const int previous = (comm_.rank() + comm_.size() - 1) % comm_.size();
  const std::vector<char> first(20, static_cast<char>(comm_.rank())), second(20, static_cast<char>(100 + comm_.rank()));
  std::vector<char> got_first(20), got_second(20);
  finish(*exchange({{next, first.data(), 20}, {next, second.data(), 20}},
                   {{previous, got_first.data(), 20}, {previous, got_second.data(), 20}}, kTag, comm_));
  EXPECT_EQ(got_first, std::vector<char>(20, static_cast<char>(previous)));
  EXPECT_EQ(got_second, std::vector<char>(20, static_cast<char>(100 + previous)));
}

INSTANTIATE_TEST_SUITE_P(Chunks, Exchange, testing::Values(std::int64_t{1} << 30, std::int64_t{7}));

}  // namespace
}  // namespace weft::mpi
