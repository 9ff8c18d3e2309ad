#include "weft/aggregation/transport/source_filter.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <vector>

#include "weft/aggregation/transport/socket_address.h"
#include "weft/files/file_descriptor.h"

namespace weft::aggregation {
namespace {

constexpr std::uint32_t kHost = 0x7F000001;
constexpr std::uint32_t kNeighbour = 0x7F000002;

class Socket {
 public:
  explicit Socket(std::uint32_t host) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    const sockaddr_in name = to_socket_address({host, 0});
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] Address address() const {
    sockaddr_in name{};
    socklen_t size = sizeof name;
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&name), &size), 0);
    return from_socket_address(name);
  }
  // On loopback, a packet has arrived or been dropped when the sending call returns.
  [[nodiscard]] bool reaches(const Socket& other) const {
    const sockaddr_in to = to_socket_address(other.address());
    const char byte = 'x';
    EXPECT_EQ(sendto(fd_.get(), &byte, 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to), 1);
    char received = 0;
    return recv(other.fd(), &received, 1, 0) == 1;
  }

 private:
  files::FileDescriptor fd_;
};

// `count` sources of one host; `last` is the last one.
std::vector<Address> crowd(std::size_t count, std::uint32_t host, const Address& last) {
  std::vector<Address> sources;
  for (std::size_t i = 1; i < count; ++i) sources.push_back({host, static_cast<std::uint16_t>(i)});
  sources.push_back(last);
  return sources;
}

TEST(SourceFilter, AcceptsListedSources) {
  const Socket target(kHost);
  const Socket friendly(kHost);
  const Socket stranger(kHost);
  EXPECT_TRUE(stranger.reaches(target)) << "no filter yet";
  EXPECT_TRUE(filter_sources(target.fd(), std::vector{friendly.address()}));
  EXPECT_TRUE(friendly.reaches(target));
  EXPECT_FALSE(stranger.reaches(target));
  EXPECT_TRUE(filter_sources(target.fd(), std::vector{Address{kHost, 0}}));
  EXPECT_TRUE(stranger.reaches(target)) << "any port of that host";
  EXPECT_TRUE(filter_sources(target.fd(), {}));
  EXPECT_FALSE(friendly.reaches(target));
}

// The kernel rejects a filter if it and the previous one together are too large. The previous one must not stay.
TEST(SourceFilter, AcceptsNewSourcesOfLargeFilters) {
  const Socket target(kHost);
  for (std::size_t count = 1; count <= 1023; count += 2) {
    const Socket newest(kHost);
    filter_sources(target.fd(), crowd(count, kHost, newest.address()));
    ASSERT_TRUE(newest.reaches(target)) << count << " sources";
  }
}

TEST(SourceFilter, TooManySourcesAreFilteredByHost) {
  const Socket target(kHost);
  const Socket friendly(kHost);
  const Socket colleague(kHost);
  const Socket stranger(kNeighbour);
  EXPECT_TRUE(filter_sources(target.fd(), crowd(1023, kHost, friendly.address())));
  EXPECT_TRUE(friendly.reaches(target));
  EXPECT_TRUE(colleague.reaches(target));
  EXPECT_FALSE(stranger.reaches(target));
}

TEST(SourceFilter, TooManyHostsDisableTheFilter) {
  const Socket target(kHost);
  const Socket stranger(kNeighbour);
  std::vector<Address> sources;
  for (std::uint32_t i = 0; i < 2000; ++i) sources.push_back({0x0A000000 + i, 7});
  EXPECT_FALSE(filter_sources(target.fd(), sources));
  EXPECT_TRUE(stranger.reaches(target));
  EXPECT_TRUE(filter_sources(target.fd(), {})) << "fewer sources restore the filter";
  EXPECT_FALSE(stranger.reaches(target));
}

}  // namespace
}  // namespace weft::aggregation
