// Parcels in a ring: every rank sends to the next rank and receives from the previous one. One rank sends to itself.
#include "weft/mpi/message/parcel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "tests/mpi/scoped_options.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;
constexpr std::int64_t kLarge = 100'000;

Bytes content(int sender, std::int64_t size, int salt = 0) {
  Bytes bytes(static_cast<std::size_t>(size));
  const auto start = static_cast<std::size_t>(31 * (sender + salt));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(start + i * 7 + i / 256);
  return bytes;
}

class Parcels : public testing::Test {
 protected:
  const std::shared_ptr<Communicator> communicator_ = Communicator::over(CommView::world(), "parcels");
  const int rank_ = communicator_->rank();
  const int size_ = communicator_->size();
  const int after_ = (rank_ + 1) % size_;
  const int before_ = (rank_ + size_ - 1) % size_;

  [[nodiscard]] CommView channel(Direction direction) const {
    return direction == Direction::kForward ? communicator_->messages() : communicator_->channel(direction);
  }
  [[nodiscard]] Request send(const Bytes& bytes, int tag, Direction direction = Direction::kForward, int dest = -1) {
    const auto owned = std::make_shared<Bytes>(bytes);
    const std::int64_t shape[] = {static_cast<std::int64_t>(bytes.size())};
    return send_parcel(*communicator_, channel(direction), dest < 0 ? after_ : dest, tag,
                       label_for(Datatype::kUInt8, shape), owned->data(), owned);
  }
  static Bytes take(IncomingParcel& incoming) {
    const Label& label = incoming.wait_label();
    const auto bytes = std::make_shared<Bytes>(static_cast<std::size_t>(label.bytes));
    incoming.receive_into(bytes->data(), bytes);
    return *bytes;
  }
  Bytes receive(int tag, Direction direction = Direction::kForward) {
    IncomingParcel incoming(*communicator_, channel(direction), before_, tag);
    return take(incoming);
  }
  void finish(Request& request) { request.wait({.operation = "send", .communicator = communicator_.get()}); }
};

TEST_F(Parcels, ArriveCompleteInEverySize) {
  std::vector<std::int64_t> sizes{0, 1, 1000, kLarge};
  for (std::int64_t size = 3780; size <= 4100; size += 4) sizes.push_back(size);  // around the inline limit
  for (const auto size : sizes) {
    Request request = send(content(rank_, size), 5);
    EXPECT_EQ(receive(5), content(before_, size)) << size;
    finish(request);
  }
}

TEST_F(Parcels, LabelDescribesTheContent) {
  const std::vector<float> data(6, 1.5F);
  const std::int64_t shape[] = {2, 3};
  Label label = label_for(Datatype::kFloat32, shape);
  label.wants_grad = true;
  label.gradient_tag = 77;
  Request request = send_parcel(*communicator_, communicator_->messages(), after_, 4, label, data.data(), nullptr);
  IncomingParcel incoming(*communicator_, communicator_->messages(), before_, 4);
  const Label& got = incoming.wait_label();
  EXPECT_EQ(got.type, Datatype::kFloat32);
  EXPECT_THAT(std::vector<std::int64_t>(got.sizes().begin(), got.sizes().end()), ElementsAre(2, 3));
  EXPECT_EQ(got.bytes, 24);
  EXPECT_TRUE(got.wants_grad);
  EXPECT_EQ(got.gradient_tag, 77);
  EXPECT_EQ(got.describe(), "float32[2, 3]");
  EXPECT_EQ(incoming.source(), before_);
  EXPECT_EQ(incoming.tag(), 4);
  std::vector<float> out(6);
  incoming.receive_into(out.data(), nullptr);
  EXPECT_EQ(out, data);
  finish(request);
}

TEST_F(Parcels, SupportScalarsAndEmptyTensors) {
  const double scalar = rank_ + 0.5;
  const std::int64_t empty[] = {0, 3};
  const CommView forward = communicator_->messages();
  Request first = send_parcel(*communicator_, forward, after_, 1, label_for(Datatype::kFloat64, {}), &scalar, nullptr);
  Request second =
      send_parcel(*communicator_, forward, after_, 2, label_for(Datatype::kFloat64, empty), nullptr, nullptr);
  IncomingParcel one(*communicator_, communicator_->messages(), before_, 1);
  EXPECT_EQ(one.wait_label().describe(), "float64[]");
  double got = 0;
  one.receive_into(&got, nullptr);
  EXPECT_EQ(got, before_ + 0.5);
  IncomingParcel two(*communicator_, communicator_->messages(), before_, 2);
  EXPECT_EQ(two.wait_label().describe(), "float64[0, 3]");
  EXPECT_EQ(two.wait_label().bytes, 0);
  two.receive_into(nullptr, nullptr);
  finish(first);
  finish(second);
}

TEST_F(Parcels, SupportUpToSixteenDimensions) {
  const std::vector<std::int64_t> shape(17, 1);
  EXPECT_EQ(label_for(Datatype::kInt8, std::span(shape).first(16)).sizes().size(), 16U);
  try {
    static_cast<void>(label_for(Datatype::kInt8, shape));
    ADD_FAILURE() << "17 dimensions were accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("17"));
  }
}

TEST_F(Parcels, WithOneTagArriveInOrder) {
  std::vector<Request> requests;
  for (int i = 0; i < 10; ++i) requests.push_back(send(content(rank_, i % 2 == 0 ? kLarge : 10, i), 6));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(receive(6), content(before_, i % 2 == 0 ? kLarge : 10, i)) << i;
  for (auto& request : requests) finish(request);
}

TEST_F(Parcels, WithTwoTagsCanBeReceivedInAnyOrder) {
  for (const std::int64_t size : {std::int64_t{10}, kLarge}) {
    Request first = send(content(rank_, size, 1), 1);
    Request second = send(content(rank_, size, 2), 2);
    EXPECT_EQ(receive(2), content(before_, size, 2));
    EXPECT_EQ(receive(1), content(before_, size, 1));
    finish(first);
    finish(second);
  }
}

TEST_F(Parcels, DirectionsAreSeparate) {
  Request forward = send(content(rank_, kLarge, 1), 9, Direction::kForward);
  Request backward = send(content(rank_, kLarge, 2), 9, Direction::kBackward);
  EXPECT_EQ(receive(9, Direction::kBackward), content(before_, kLarge, 2));
  EXPECT_EQ(receive(9, Direction::kForward), content(before_, kLarge, 1));
  finish(forward);
  finish(backward);
}

TEST_F(Parcels, AnySourceAndAnyTagFindTheMatchingPayload) {
  // Large and small parcels from all ranks to rank 0 at once.
  const auto size_from = [](int rank) { return rank % 2 == 0 ? kLarge + rank : 100 + rank; };
  Request request = send(content(rank_, size_from(rank_)), 40 + rank_, Direction::kForward, 0);
  std::vector<int> seen;
  for (int i = 0; rank_ == 0 && i < size_; ++i) {
    IncomingParcel incoming(*communicator_, communicator_->messages(), std::nullopt, std::nullopt);
    const Bytes bytes = take(incoming);
    EXPECT_EQ(incoming.tag(), 40 + incoming.source());
    EXPECT_EQ(bytes, content(incoming.source(), size_from(incoming.source())));
    seen.push_back(incoming.source());
  }
  std::sort(seen.begin(), seen.end());
  std::vector<int> everybody(rank_ == 0 ? static_cast<std::size_t>(size_) : 0);
  std::iota(everybody.begin(), everybody.end(), 0);
  EXPECT_EQ(seen, everybody);
  finish(request);
}

TEST_F(Parcels, PayloadsOfTwoSendersWithOneTagAreNotMixed) {
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(send(content(rank_, kLarge, i), 3, Direction::kForward, 0));
  std::vector<int> next(static_cast<std::size_t>(size_), 0);
  for (int i = 0; rank_ == 0 && i < 4 * size_; ++i) {
    IncomingParcel incoming(*communicator_, communicator_->messages(), std::nullopt, 3);
    const Bytes bytes = take(incoming);
    EXPECT_EQ(bytes, content(incoming.source(), kLarge, next[static_cast<std::size_t>(incoming.source())]++));
  }
  for (auto& request : requests) finish(request);
}

TEST_F(Parcels, DiscardLeavesTheNextParcelIntact) {
  for (const std::int64_t size : {std::int64_t{10}, kLarge}) {
    Request unwanted = send(content(rank_, size, 1), 8);
    Request wanted = send(content(rank_, size, 2), 8);
    {
      IncomingParcel incoming(*communicator_, communicator_->messages(), before_, 8);
      incoming.wait_label();
      incoming.discard();
    }
    EXPECT_EQ(receive(8), content(before_, size, 2));
    finish(unwanted);
    finish(wanted);
  }
}

TEST_F(Parcels, AreSentInChunks) {
  const ScopedOptions chunks([](Options& options) { options.max_count = 1000; });
  for (const std::int64_t size : {3000, 9999, 10'000, 10'001}) {
    Request first = send(content(rank_, size, 1), 1);
    Request second = send(content(rank_, size, 2), 2);
    EXPECT_EQ(receive(2), content(before_, size, 2));
    EXPECT_EQ(receive(1), content(before_, size, 1));
    finish(first);
    finish(second);
  }
}

TEST_F(Parcels, SendKeepsItsBufferAlive) {
  const auto data = std::make_shared<Bytes>(content(rank_, kLarge));
  const std::int64_t shape[] = {kLarge};
  const Label label = label_for(Datatype::kUInt8, shape);
  Request request = send_parcel(*communicator_, communicator_->messages(), after_, 1, label, data->data(), data);
  EXPECT_TRUE(data.use_count() > 1 || request.done());
  EXPECT_EQ(receive(1), content(before_, kLarge));
  finish(request);
  EXPECT_EQ(data.use_count(), 1);
}

TEST_F(Parcels, TimedOutReceiveLeavesTheCommunicatorUsable) {
  {
    const ScopedOptions hurry([](Options& options) { options.timeout = std::chrono::milliseconds(200); });
    IncomingParcel incoming(*communicator_, communicator_->messages(), before_, 2);
    EXPECT_FALSE(incoming.arrived());
    try {
      incoming.wait_label();
      ADD_FAILURE() << "no rank has sent";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr("recv"));
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(rank_) + " "));
      EXPECT_THAT(error.what(), HasSubstr("no message from rank " + std::to_string(before_)));
    }
  }
  CommView::world().barrier();
  Request request = send(content(rank_, kLarge), 2);
  EXPECT_EQ(receive(2), content(before_, kLarge)) << "the cancelled receive must not consume the parcel";
  finish(request);
  communicator_->enter();
  EXPECT_TRUE(communicator_->agree(Direction::kForward, {.signature = 1}).same_call());
}

}  // namespace
}  // namespace weft::mpi
