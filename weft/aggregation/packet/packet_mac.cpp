#include "weft/aggregation/packet/packet_mac.h"

#include <openssl/crypto.h>

#include <cstring>

#include "weft/aggregation/packet/extended_format.h"

namespace weft::aggregation {

PacketMac::PacketMac(const SessionKey& key, const Sender& sender) {
  if (key != SessionKey{}) gmac_.emplace(derive_sender_key(key, sender));
}

void PacketMac::seal(std::span<std::byte> packet, std::span<const std::byte> shared) {
  const Tag tag = tag_of(packet, shared);
  std::memcpy(packet.data() + packet.size() - kTagBytes, tag.data(), kTagBytes);
}

bool PacketMac::verify(std::span<const std::byte> packet, std::span<const std::byte> shared) {
  const Tag tag = tag_of(packet, shared);
  return CRYPTO_memcmp(packet.data() + packet.size() - kTagBytes, tag.data(), kTagBytes) == 0;
}

Tag PacketMac::tag_of(std::span<const std::byte> packet, std::span<const std::byte> shared) {
  if (!gmac_) return {};
  return gmac_->tag(extended::nonce_of(packet), packet.first(packet.size() - kTagBytes), shared);
}

}  // namespace weft::aggregation
