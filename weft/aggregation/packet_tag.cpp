#include "weft/aggregation/packet_tag.h"

#include <array>
#include <cstring>

#include "weft/aggregation/processor.h"
#include "weft/aggregation/siphash.h"
#include "weft/aggregation/siphash_state.h"

namespace weft::aggregation {
namespace {

constexpr std::uint64_t kInner = 0x3636363636363636;
constexpr std::size_t kStride = 32;  // a word for each of four lanes
using Lanes = std::uint64_t __attribute__((vector_size(kStride)));

// The four lanes' words, then the message's length.
using Summary = std::array<std::uint64_t, 5>;

[[gnu::always_inline]] inline void hash_lanes(const PacketKey& key, std::span<const std::byte> message, Summary& out) {
  std::array<std::uint64_t, 2> words{};
  std::memcpy(words.data(), key.data(), sizeof words);
  const Lanes none{};
  SipHashState<Lanes> state(none + (words[0] ^ kInner), none + (words[1] ^ kInner));
  state.absorb(Lanes{0, 1, 2, 3});
  Lanes lanes{};
  const std::size_t whole = message.size() / kStride * kStride;
  for (std::size_t at = 0; at < whole; at += kStride) {
    std::memcpy(&lanes, message.data() + at, kStride);
    state.absorb(lanes);
  }
  if (message.size() > whole) {
    lanes = none;
    std::memcpy(&lanes, message.data() + whole, message.size() - whole);
    state.absorb(lanes);
  }
  state.finish(lanes);
  std::memcpy(out.data(), &lanes, kStride);
  out[4] = message.size();
}

WEFT_AVX2 void hash_lanes_avx2(const PacketKey& key, std::span<const std::byte> message, Summary& out) {
  hash_lanes(key, message, out);
}

}  // namespace

std::uint64_t packet_tag(const PacketKey& key, std::span<const std::byte> message) {
  Summary summary{};
  has_avx2() ? hash_lanes_avx2(key, message, summary) : hash_lanes(key, message, summary);
  return siphash(key, std::as_bytes(std::span(summary)));
}

}  // namespace weft::aggregation
