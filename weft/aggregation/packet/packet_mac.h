// Authentication of the extended packets that one sender sends; docs/aggregation-protocol.md states the construction.
#pragma once

#include <optional>
#include <span>

#include "weft/aggregation/packet/gmac.h"

namespace weft::aggregation {

class PacketMac {
 public:
  // Creates a MAC without a key: tags are zero and cost nothing.
  PacketMac() = default;
  // An all-zero session key means that the session has no key.
  PacketMac(const SessionKey& key, const Sender& sender);

  // Writes the tag into the last bytes of an extended packet whose header and body are complete. `shared`: its elements
  // in shared memory, if any.
  void seal(std::span<std::byte> packet, std::span<const std::byte> shared = {});
  // Whether an extended packet, which decode() has accepted, carries this sender's tag. Runs in constant time.
  [[nodiscard]] bool verify(std::span<const std::byte> packet, std::span<const std::byte> shared = {});

 private:
  [[nodiscard]] Tag tag_of(std::span<const std::byte> packet, std::span<const std::byte> shared);

  std::optional<Gmac> gmac_;
};

}  // namespace weft::aggregation
