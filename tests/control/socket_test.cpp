#include "weft/control/socket.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>

#include <atomic>

#include "tests/control/interfaces.h"

namespace {

std::atomic<int> g_reads{0};

}  // namespace

// Replaces the C library's function in this program.
extern "C" int getifaddrs(ifaddrs** all) noexcept {
  ++g_reads;
  static const auto usual = reinterpret_cast<int (*)(ifaddrs**)>(dlsym(RTLD_NEXT, "getifaddrs"));
  return usual(all);
}

namespace weft::control {
namespace {

constexpr std::uint32_t kElsewhere = 0xC6336401;  // 198.51.100.1, reserved for documentation

TEST(OwnAddresses, AreFound) {
  EXPECT_TRUE(is_own_address(0x7F000001));
  EXPECT_TRUE(is_own_address(0x7F010203));
  EXPECT_FALSE(is_own_address(kElsewhere));
  EXPECT_EQ(hardware_address(kElsewhere), 0U);
  if (const auto interface = tests::any_interface()) {
    EXPECT_TRUE(is_own_address(interface->ipv4));
    EXPECT_EQ(hardware_address(interface->ipv4), interface->mac);
  }
}

// Requests of strangers must not make the switch read its interfaces each time.
TEST(OwnAddresses, AreReadOncePerSecond) {
  const auto begin = std::chrono::steady_clock::now();
  const int before = g_reads;
  for (int i = 0; i < 10'000; ++i) EXPECT_FALSE(is_own_address(kElsewhere));
  const auto seconds = (std::chrono::steady_clock::now() - begin) / std::chrono::seconds(1);
  EXPECT_LE(g_reads - before, seconds + 2);
}

}  // namespace
}  // namespace weft::control
