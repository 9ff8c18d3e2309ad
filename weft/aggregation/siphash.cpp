#include "weft/aggregation/siphash.h"

#include <bit>
#include <cstring>

namespace weft::aggregation {
namespace {

[[nodiscard]] std::uint64_t load_word(const void* from, std::size_t bytes = 8) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, bytes);  // SipHash reads little-endian words
  return word;
}

struct State {
  std::uint64_t v0, v1, v2, v3;

  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1, v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0, v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1, v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2, v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  }
  void absorb(std::uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
};

}  // namespace

std::uint64_t siphash(const PacketKey& key, std::span<const std::byte> message) {
  const std::uint64_t k0 = load_word(key.data());
  const std::uint64_t k1 = load_word(key.data() + 8);
  // The constants spell "somepseudorandomlygeneratedbytes".
  State state{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573};
  const std::size_t whole = message.size() / 8 * 8;
  for (std::size_t i = 0; i < whole; i += 8) state.absorb(load_word(message.data() + i));
  const std::uint64_t rest = message.size() > whole ? load_word(message.data() + whole, message.size() - whole) : 0;
  state.absorb(rest | (static_cast<std::uint64_t>(message.size()) << 56));
  state.v2 ^= 0xff;
  state.rounds(4);
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace weft::aggregation
