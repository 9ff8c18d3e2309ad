#include "weft/aggregation/packet_tag.h"

#include "weft/aggregation/packet_tag_lanes.h"
#include "weft/aggregation/processor.h"
#include "weft/aggregation/siphash.h"

namespace weft::aggregation {

std::uint64_t packet_tag(const PacketKey& key, std::span<const std::byte> message) {
  TagSummary summary{};
  has_avx2() ? hash_lanes_avx2(key, message, summary) : hash_lanes(key, message, summary);
  return siphash(key, std::as_bytes(std::span(summary)));
}

}  // namespace weft::aggregation
