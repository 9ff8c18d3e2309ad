// The lanes of a packet's tag, compiled once for any processor and once for AVX2: only two sources include this, and
// each gets a copy of its own.
#pragma once

#include <array>
#include <cstring>

#include "weft/aggregation/packet_tag.h"
#include "weft/aggregation/siphash_state.h"

namespace weft::aggregation {

// The eight lanes' words, then the message's length.
using TagSummary = std::array<std::uint64_t, 9>;

void hash_lanes_avx2(const PacketKey& key, std::span<const std::byte> message, TagSummary& out);

namespace {

using Quad = std::uint64_t __attribute__((vector_size(32)));
constexpr std::size_t kStride = 2 * sizeof(Quad);

// Four lanes in each half; the processor works on one while the other waits for its last step.
struct Lanes {
  SipHashState<Quad> low;
  SipHashState<Quad> high;

  [[gnu::always_inline]] void absorb(const std::byte* words) {
    Quad quad;
    std::memcpy(&quad, words, sizeof quad);
    low.absorb(quad);
    std::memcpy(&quad, words + sizeof quad, sizeof quad);
    high.absorb(quad);
  }
};

[[gnu::always_inline]] inline void hash_lanes(const PacketKey& key, std::span<const std::byte> message,
                                              TagSummary& out) {
  std::array<std::uint64_t, 2> words{};
  std::memcpy(words.data(), key.data(), sizeof words);
  for (std::uint64_t& word : words) word ^= 0x3636363636363636;  // the inner key
  const SipHashState<Quad> fresh(Quad{} + words[0], Quad{} + words[1]);
  Lanes lanes{fresh, fresh};
  lanes.low.absorb(Quad{0, 1, 2, 3});
  lanes.high.absorb(Quad{4, 5, 6, 7});
  const std::size_t whole = message.size() / kStride * kStride;
  for (std::size_t at = 0; at < whole; at += kStride) lanes.absorb(message.data() + at);
  if (message.size() > whole) {
    std::array<std::byte, kStride> rest{};
    std::memcpy(rest.data(), message.data() + whole, message.size() - whole);
    lanes.absorb(rest.data());
  }
  Quad quad;
  lanes.low.finish(quad);
  std::memcpy(out.data(), &quad, sizeof quad);
  lanes.high.finish(quad);
  std::memcpy(out.data() + 4, &quad, sizeof quad);
  out[8] = message.size();
}

}  // namespace
}  // namespace weft::aggregation
