#include "weft/control/listener.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "tests/control/connect.h"
#include "tests/control/no_descriptors.h"

namespace weft::control {
namespace {

class Listening : public ::testing::Test {
 protected:
  EventCounters counters_;
  Listener listener_{{kLoopback, 0}, counters_};
  files::FileDescriptor client_{socket(AF_INET, SOCK_STREAM, 0)};
};

TEST_F(Listening, AcceptsPendingConnections) {
  EXPECT_LT(listener_.accept().get(), 0);
  connect_to(client_.get(), listener_.port());
  EXPECT_GE(listener_.accept().get(), 0);
  EXPECT_LT(listener_.accept().get(), 0);
  EXPECT_EQ(counters_.of(Event::kNoDescriptors), 0U);
}

// Linux's accept() fails without free descriptors even if no connection is pending. This must not count or pause.
TEST_F(Listening, WithoutDescriptorsAndConnectionsNothingIsCounted) {
  const NoDescriptors all_taken;
  EXPECT_LT(listener_.accept().get(), 0);
  EXPECT_EQ(counters_.of(Event::kNoDescriptors), 0U);
  EXPECT_GE(listener_.watched(), 0);
}

TEST_F(Listening, WithoutDescriptorsConnectionsAreAcceptedAfterAPause) {
  {
    const NoDescriptors all_taken;
    connect_to(client_.get(), listener_.port());
    for (int i = 0; i < 3; ++i) EXPECT_LT(listener_.accept().get(), 0);
    EXPECT_GE(counters_.of(Event::kNoDescriptors), 1U);
  }
  while (listener_.watched() < 0) std::this_thread::yield();
  EXPECT_GE(listener_.accept().get(), 0);
}

}  // namespace
}  // namespace weft::control
