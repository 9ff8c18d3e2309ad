// Closing communicators: messages that no rank received are dropped, and MPI's memory is freed.
#include "weft/mpi/closing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/eventually.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/message/parcel.h"

namespace weft::mpi {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t kSmall = 10;
constexpr std::size_t kLarge = 100'000;  // above the eager limit, so that MPI needs the receiver

CommView world() { return CommView::world(); }
int after(const Communicator& communicator) { return (communicator.rank() + 1) % communicator.size(); }
int before(const Communicator& communicator) {
  return (communicator.rank() + communicator.size() - 1) % communicator.size();
}

Request send(Communicator& communicator, CommView channel, std::size_t size, int tag, std::uint8_t value) {
  const auto bytes = std::make_shared<Bytes>(size, value);
  const std::int64_t shape[] = {static_cast<std::int64_t>(size)};
  return send_parcel(communicator, channel, after(communicator), tag, label_for(Datatype::kUInt8, shape), bytes->data(),
                     bytes);
}

Bytes receive(IncomingParcel& incoming) {
  const auto bytes = std::make_shared<Bytes>(static_cast<std::size_t>(incoming.wait_label().bytes));
  incoming.receive_into(bytes->data(), bytes);
  return *bytes;
}

// Every rank polls until all ranks have closed everything: a rank may need the confirmations of the others.
void expect_all_closed() {
  Request all_closed;
  bool joined = false;
  eventually(
      [&] {
        if (closing_count() == 0 && !joined) {
          joined = true;
          EXPECT_EQ(MPI_Ibarrier(MPI_COMM_WORLD, all_closed.add()), MPI_SUCCESS);
        }
        return joined && all_closed.test();
      },
      "the end of closing");
}

TEST(Closing, CommunicatorsWithoutMessagesAreFreed) {
  for (int i = 0; i < 50; ++i) static_cast<void>(Communicator::over(world()));
  expect_all_closed();
}

// Messages used to remain in MPI, which delivered them to the next communicator with the same context id, or the
// communicator was leaked.
TEST(Closing, UnreceivedMessagesDoNotReachTheNextCommunicator) {
  for (int round = 0; round < 100; ++round) {
    auto doomed = Communicator::over(world(), "doomed");
    std::vector<Request> sends;
    for (const std::size_t size : {kSmall, kLarge}) {
      sends.push_back(send(*doomed, doomed->messages(), size, 7, 1));
      sends.push_back(send(*doomed, doomed->channel(Direction::kBackward), size, 300, 2));
    }
    doomed.reset();
    const auto fresh = Communicator::over(world(), "fresh");
    Request request = send(*fresh, fresh->messages(), kSmall, 8, 3);
    IncomingParcel incoming(*fresh, fresh->messages(), std::nullopt, std::nullopt);
    ASSERT_EQ(receive(incoming), Bytes(kSmall, 3)) << "in round " << round;
    ASSERT_EQ(incoming.tag(), 8);
    request.wait({.operation = "send", .communicator = fresh.get()});
  }
  expect_all_closed();
}

// MPICH supports about 2,000 communicators and Open MPI's slow down, so they must be freed although messages were sent.
TEST(Closing, CommunicatorsWithMessagesAreFreed) {
  int handle = 0;
  for (int i = 0; i < 700; ++i) {
    const auto communicator = Communicator::over(world());
    Request request = send(*communicator, communicator->messages(), kSmall, 1, 1);
    if (i % 2 == 0) {
      IncomingParcel incoming(*communicator, communicator->messages(), before(*communicator), 1);
      EXPECT_EQ(receive(incoming), Bytes(kSmall, 1));
    }
#if defined(OPEN_MPI)
    handle = MPI_Comm_c2f(communicator->control().handle());  // an index into a table whose entries are reused
#endif
  }
  EXPECT_LT(handle, 500);
  expect_all_closed();
}

TEST(Closing, WaitsForRanksThatCloseLater) {
  auto communicator = Communicator::over(world());
  Request request = send(*communicator, communicator->messages(), kLarge, 1, 1);
  if (world().rank() == 0) communicator.reset();
  world().barrier();
  for (int i = 0; i < 10; ++i) advance_closing();
  if (world().rank() == 0 && world().size() > 1) {
    EXPECT_EQ(closing_count(), 1U) << "freed while other ranks may send";
  }
  world().barrier();
  communicator.reset();
  expect_all_closed();
  EXPECT_TRUE(request.test());
}

TEST(Closing, OneRankDropsItsMessagesToItself) {
  for (int round = 0; round < 20; ++round) {
    auto doomed = Communicator::adopt(world().split(world().rank(), 0));
    Request first = send(*doomed, doomed->messages(), kLarge, 7, 1);
    doomed.reset();
    const auto fresh = Communicator::adopt(world().split(world().rank(), 0));
    Request second = send(*fresh, fresh->messages(), kSmall, 8, 2);
    IncomingParcel incoming(*fresh, fresh->messages(), std::nullopt, std::nullopt);
    ASSERT_EQ(receive(incoming), Bytes(kSmall, 2));
  }
  expect_all_closed();
}

// A farewell must not be taken for a message.
TEST(Closing, PendingReceiveWithAnyTagIgnoresFarewells) {
  auto communicator = Communicator::over(world());
  Request request = send(*communicator, communicator->messages(), kSmall, 1, 1);
  {
    IncomingParcel incoming(*communicator, communicator->messages(), std::nullopt, std::nullopt);
    EXPECT_EQ(receive(incoming), Bytes(kSmall, 1));
  }
  auto pending = std::make_unique<IncomingParcel>(*communicator, communicator->messages(), std::nullopt, std::nullopt);
  communicator->close();
  for (int i = 0; i < 100; ++i) {
    advance_closing();
    EXPECT_FALSE(pending->arrived());
  }
  EXPECT_THROW(pending->wait_label(), Disagreement) << "the communicator was freed";
  eventually([&] { return !pending->arrived() && closing_count() == 0; }, "the end of closing");
  pending.reset();
  expect_all_closed();
}

}  // namespace
}  // namespace weft::mpi
