// A packet in either format: its head, and where its exponents and elements lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "weft/aggregation/job.h"

namespace weft::aggregation {

inline constexpr int kMaxSwitchMlWorkers = 32;
inline constexpr int kMaxExtendedWorkers = 1023;
// Elements that share an exponent in extended packets. Each block has two exponent bytes.
inline constexpr int kBlockElements = 64;
inline constexpr int kExponentsPerBlock = 2;

enum class Kind : std::uint8_t {
  kContribution = 0,  // worker to switch; SwitchML's format does not tell contributions from results
  kResult = 1,
  kUnknownJob = 2,        // notice of the switch: it has no such job; not authenticated, so only a hint
  kOperationsDiffer = 3,  // notice of the switch to all workers of a job
};

struct Head {
  Mode mode = Mode::kExtended;
  Kind kind = Kind::kContribution;
  std::uint32_t slot = 0;
  std::uint8_t set = 0;         // which of the slot's two; extended: the sequence's lowest bit
  std::uint32_t operation = 0;  // SwitchML: its 8-bit job number; extended: fingerprint of type and length
  std::uint64_t sequence = 0;   // of the slot's sums; SwitchML: its 32-bit tsi
  // Extended only:
  std::uint32_t job = 0;
  std::uint64_t epoch = 0;
  std::uint16_t rank = 0;  // of a contribution's sender

  friend bool operator==(const Head&, const Head&) = default;
};

// Views into a packet's bytes: exponents are int8, elements big-endian int32.
struct Packet {
  Head head;
  std::span<const std::byte> exponents;
  std::span<const std::byte> elements;

  [[nodiscard]] std::size_t element_count() const { return elements.size() / 4; }
};

// Where to write a packet's contents, after its head was written.
struct Body {
  std::span<std::byte> exponents;
  std::span<std::byte> elements;
};

struct Shape {
  std::size_t exponents = 0;
  std::size_t elements = 0;

  friend bool operator==(const Shape&, const Shape&) = default;
};

// Bytes of UDP payload.
[[nodiscard]] std::size_t packet_size(Mode mode, const Shape& shape);
// The largest packet of a job with so many elements per packet.
[[nodiscard]] Shape full_shape(Mode mode, int packet_elements);

// The packet that lies in `bytes`, in whichever format; nothing unless every byte of it makes sense. The tag of an
// extended packet is not looked at.
[[nodiscard]] std::optional<Packet> decode(std::span<const std::byte> bytes);

// Writes the head into `bytes`, which are packet_size() many; the caller fills in the body, then calls seal().
[[nodiscard]] Body write_head(std::span<std::byte> bytes, const Head& head, const Shape& shape);
// Extended: appends the tag over all that was written; 0 where the key is, which nobody was given. SwitchML: nothing.
void seal(std::span<std::byte> bytes, Mode mode, const PacketKey& key);
// Whether an extended packet was sealed with this key.
[[nodiscard]] bool is_authentic(std::span<const std::byte> bytes, const PacketKey& key);

}  // namespace weft::aggregation
