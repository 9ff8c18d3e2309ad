// With AVX2 for the whole file: a vector's type must know of it, not only the function that uses it.
#include <array>
#include <cstring>

#include "weft/aggregation/packet_tag.h"

#if defined(__x86_64__)
#pragma GCC target("avx2")
#endif
#include "weft/aggregation/packet_tag_lanes.h"

namespace weft::aggregation {

void hash_lanes_avx2(const PacketKey& key, std::span<const std::byte> message, TagSummary& out) {
  hash_lanes(key, message, out);
}

}  // namespace weft::aggregation
