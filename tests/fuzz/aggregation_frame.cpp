// Fuzz target: arbitrary Ethernet frames, as received by a transport that bypasses the kernel.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "weft/aggregation/packet/packet.h"
#include "weft/aggregation/transport/udp_frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft::aggregation;
  const auto* first = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> frame(first, first + size);  // exact size, so that the sanitizer detects overreads
  const auto datagram = read_frame(frame);
  if (!datagram) return 0;
  const std::byte* begin = datagram->payload.data();
  const bool inside =
      begin >= frame.data() + kFrameHeaderBytes && begin + datagram->payload.size() <= frame.data() + frame.size();
  if (!inside) std::abort();
  (void)decode(datagram->payload);
  return 0;
}
