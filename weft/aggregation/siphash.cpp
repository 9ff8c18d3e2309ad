#include "weft/aggregation/siphash.h"

#include <cstring>

#include "weft/aggregation/siphash_state.h"

namespace weft::aggregation {
namespace {

[[nodiscard]] std::uint64_t load_word(const void* from, std::size_t bytes = 8) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, bytes);  // SipHash reads little-endian words
  return word;
}

}  // namespace

std::uint64_t siphash(const PacketKey& key, std::span<const std::byte> message) {
  SipHashState<std::uint64_t> state(load_word(key.data()), load_word(key.data() + 8));
  const std::size_t whole = message.size() / 8 * 8;
  for (std::size_t i = 0; i < whole; i += 8) state.absorb(load_word(message.data() + i));
  const std::uint64_t rest = message.size() > whole ? load_word(message.data() + whole, message.size() - whole) : 0;
  state.absorb(rest | (static_cast<std::uint64_t>(message.size()) << 56));
  std::uint64_t hash = 0;
  state.finish(hash);
  return hash;
}

}  // namespace weft::aggregation
