#include "weft/control/connection_limiter.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/control/connect.h"
#include "tests/control/no_descriptors.h"
#include "weft/files/file_descriptor.h"

namespace weft::control {
namespace {

using namespace std::chrono_literals;

class Limiter : public ::testing::Test {
 protected:
  Limiter() {
    limiter_.open([this](int fd) { inside_.emplace_back(fd); });
  }
  ~Limiter() override { limiter_.close(); }

  void wait_for_connections(std::size_t count) const {
    while (limiter_.connections() < count) std::this_thread::sleep_for(1ms);
  }

  EventCounters counters_;
  ConnectionLimiter limiter_{{kLoopback, 0}, {}, counters_};
  std::vector<files::FileDescriptor> inside_;  // owned by the limiter's thread until close()
};

TEST_F(Limiter, TracksOpenConnections) {
  {
    const files::FileDescriptor peer(connect_to(limiter_.port()));
    wait_for_connections(1);
  }
  while (limiter_.connections() > 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(counters_.of(Event::kDroppedTooMany), 0U);
}

// A connection needs two descriptors: its own and the duplicate for polling.
TEST_F(Limiter, WithOneDescriptorLeftConnectionsWait) {
  const files::FileDescriptor peer(socket(AF_INET, SOCK_STREAM, 0));
  {
    NoDescriptors all_taken;
    all_taken.give_one_back();
    connect_to(peer.get(), limiter_.port());
    while (counters_.of(Event::kNoDescriptors) < 3 && counters_.of(Event::kDroppedTooMany) == 0) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(limiter_.connections(), 0U);
  }
  ASSERT_EQ(counters_.of(Event::kDroppedTooMany), 0U);
  wait_for_connections(1);
}

}  // namespace
}  // namespace weft::control
