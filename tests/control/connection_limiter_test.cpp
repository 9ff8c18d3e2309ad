#include "weft/control/connection_limiter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "tests/control/connect.h"
#include "tests/control/no_descriptors.h"
#include "weft/files/file_descriptor.h"

namespace weft::control {
namespace {

using namespace std::chrono_literals;

ConnectionLimits slow() {
  ConnectionLimits limits;
  limits.burst = limits.rate = 50;
  return limits;
}

class Limiter : public ::testing::Test {
 protected:
  explicit Limiter(const ConnectionLimits& limits = {}) : limiter_({kLoopback, 0}, limits, counters_) {
    limiter_.open([this](int fd) { inside_.emplace_back(fd); });
  }
  ~Limiter() override { limiter_.close(); }

  void wait_for_connections(std::size_t count) const {
    while (limiter_.connections() < count) std::this_thread::sleep_for(1ms);
  }

  EventCounters counters_;
  ConnectionLimiter limiter_;
  std::vector<files::FileDescriptor> inside_;  // owned by the limiter's thread until close()
};

class SlowLimiter : public Limiter {
 protected:
  SlowLimiter() : Limiter(slow()) {}
};

// Sends until the socket takes no more for a while. Returns the number of bytes.
std::size_t send_all(int fd, const std::string& pattern, std::chrono::milliseconds patience) {
  std::size_t total = 0;
  const timeval limit{0, static_cast<suseconds_t>(patience / 1us)};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  for (ssize_t sent = 0; (sent = send(fd, pattern.data(), pattern.size(), MSG_NOSIGNAL)) > 0;) {
    total += static_cast<std::size_t>(sent);
  }
  return total;
}

// Reads all bytes that are available; returns their number.
std::size_t drain(int fd) {
  char buffer[4096];
  std::size_t total = 0;
  for (ssize_t got = 0; (got = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0;) {
    total += static_cast<std::size_t>(got);
  }
  return total;
}

// HTTP/2 frames of type HEADERS without content.
std::string requests(int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += std::string("\0\0\0\1\4\0\0\0\1", 9);
  return all;
}

TEST_F(Limiter, TracksOpenConnections) {
  {
    const files::FileDescriptor peer(connect_to(limiter_.port()));
    wait_for_connections(1);
  }
  while (limiter_.connections() > 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(counters_.of(Event::kDroppedTooMany), 0U);
}

// A connection needs three descriptors: its own and a pair between the limiter and gRPC.
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

TEST_F(Limiter, CopiesBytesInBothDirections) {
  const files::FileDescriptor peer(connect_to(limiter_.port()));
  wait_for_connections(1);
  const int server = inside_.front().get();
  const std::string text = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  ASSERT_EQ(send(peer.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  std::string got;
  while (got.size() < text.size()) {
    char buffer[64];
    const ssize_t count = recv(server, buffer, sizeof(buffer), 0);
    if (count > 0) got.append(buffer, static_cast<std::size_t>(count));
  }
  EXPECT_EQ(got, text);
  ASSERT_EQ(send(server, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  std::string answer(text.size(), '\0');
  EXPECT_EQ(recv(peer.get(), answer.data(), answer.size(), MSG_WAITALL), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(answer, text);
}

// A client that sends faster waits; gRPC sees only what the budget permits.
TEST_F(SlowLimiter, LimitsTheRateOfRequests) {
  const files::FileDescriptor peer(connect_to(limiter_.port()));
  wait_for_connections(1);
  const auto begin = std::chrono::steady_clock::now();
  const std::string preface(24, 'x');
  ASSERT_EQ(send(peer.get(), preface.data(), preface.size(), 0), static_cast<ssize_t>(preface.size()));
  EXPECT_GT(send_all(peer.get(), requests(1000), 1s - 1ms), 64U << 10);
  const std::size_t seen = drain(inside_.front().get()) / 9;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GT(seen, 0U);
  // One step of 1 KiB may exceed the budget.
  EXPECT_LE(static_cast<double>(seen), (slow().burst + slow().rate * seconds) / FrameMeter::kRequest + 1024 / 9 + 24);
}

// gRPC would buffer the replies without limit.
TEST_F(Limiter, DoesNotReadFromAClientThatDoesNotReadItsReplies) {
  const files::FileDescriptor peer(socket(AF_INET, SOCK_STREAM, 0));
  const int small = 4096;
  setsockopt(peer.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  connect_to(peer.get(), limiter_.port());
  wait_for_connections(1);
  const int server = inside_.front().get();
  const int flags = fcntl(server, F_GETFL);
  fcntl(server, F_SETFL, flags & ~O_NONBLOCK);
  EXPECT_GT(send_all(server, std::string(4096, 'r'), 300ms), 4096U);  // replies
  ASSERT_EQ(send(peer.get(), requests(1).data(), 9, 0), 9);
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(drain(server), 0U);
  while (drain(peer.get()) > 0 || drain(server) == 0) std::this_thread::sleep_for(1ms);  // continues afterwards
}

}  // namespace
}  // namespace weft::control
