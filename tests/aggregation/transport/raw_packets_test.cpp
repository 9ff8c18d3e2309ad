// A live switch drops and counts packets that ordinary sockets cannot send, and continues to serve.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "tests/aggregation/live_job.h"
#include "tests/aggregation/packet/bytes.h"
#include "weft/aggregation/packet/byte_order.h"
#include "weft/aggregation/transport/socket_address.h"

namespace weft::aggregation {
namespace {

class RawPackets : public testing::Test {
 protected:
  void SetUp() override {
    if (raw_.get() < 0) GTEST_SKIP() << "raw sockets are not permitted here";
  }

  void send_from_port(std::uint16_t port, const Bytes& payload) {
    Bytes datagram(8);
    store_big_endian(datagram.data(), port);
    store_big_endian(datagram.data() + 2, target.address.port);
    store_big_endian(datagram.data() + 4, static_cast<std::uint16_t>(datagram.size() + payload.size()));
    datagram.insert(datagram.end(), payload.begin(), payload.end());  // checksum 0: none
    const sockaddr_in to = to_socket_address({target.address.ipv4, 0});
    ASSERT_EQ(
        ::sendto(raw_.get(), datagram.data(), datagram.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to),
        static_cast<ssize_t>(datagram.size()));
  }

  LiveSwitch target;
  files::FileDescriptor raw_{::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP)};
};

TEST_F(RawPackets, FromPortZeroAreDropped) {
  LiveJob job(target, {.mode = Mode::kExtended});
  Bytes unknown_job = from_hex("20 01");
  unknown_job.resize(44);
  for (int i = 0; i < 40; ++i) send_from_port(0, unknown_job);  // enough for several answers
  const auto strays = [&] { return target.jobs->snapshot(steady_now()).strays; };
  while (strays().rejected_for(Rejected::kMalformed) < 40) std::this_thread::yield();
  EXPECT_EQ(strays().packets_out, 0U);
  job.run([&](int rank, WorkerSession& session) {
    std::vector<std::int32_t> data(50'000, rank + 1);
    session.all_reduce(std::span<const std::int32_t>(data), std::span(data));
    EXPECT_EQ(std::ranges::count(data, 3), 50'000);
  });
}

}  // namespace
}  // namespace weft::aggregation
