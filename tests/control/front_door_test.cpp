#include "weft/control/front_door.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/control/connect.h"
#include "tests/control/no_descriptors.h"
#include "weft/files/file_descriptor.h"

namespace weft::control {
namespace {

using namespace std::chrono_literals;

class Door : public ::testing::Test {
 protected:
  Door() {
    door_.open([this](int fd) { inside_.emplace_back(fd); });
  }
  ~Door() override { door_.close(); }

  void wait_for_connections(std::size_t count) const {
    while (door_.connections() < count) std::this_thread::sleep_for(1ms);
  }

  Counters counters_;
  FrontDoor door_{{kLoopback, 0}, {}, counters_};
  std::vector<files::FileDescriptor> inside_;  // the door's thread's, until it is closed
};

TEST_F(Door, KnowsWhoIsInsideUntilTheyGo) {
  {
    const files::FileDescriptor visitor(connect_to(door_.port()));
    wait_for_connections(1);
  }
  while (door_.connections() > 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(counters_.of(Event::kDroppedTooMany), 0U);
}

// A connection needs two: its own, and the copy to watch it by.
TEST_F(Door, WithOneDescriptorLeftWhoKnocksWaitsAndIsNotSentAway) {
  const files::FileDescriptor visitor(socket(AF_INET, SOCK_STREAM, 0));
  {
    NoDescriptors all_taken;
    all_taken.give_one_back();
    connect_to(visitor.get(), door_.port());
    while (counters_.of(Event::kNoDescriptors) < 3 && counters_.of(Event::kDroppedTooMany) == 0) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(door_.connections(), 0U);
  }
  ASSERT_EQ(counters_.of(Event::kDroppedTooMany), 0U);
  wait_for_connections(1);
}

}  // namespace
}  // namespace weft::control
