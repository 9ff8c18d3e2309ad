// Packets in either format: the header, and views of the exponents and elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace weft::aggregation {

// Packet format of a job.
enum class Mode : std::uint8_t {
  kSwitchMl,  // SwitchML's UDP format: 64 or 256 elements, up to 32 workers, no authentication
  kExtended,  // weft's format: packets up to the MTU, up to 1023 workers, 64-bit sequence, authentication
};

inline constexpr int kMaxSwitchMlWorkers = 32;
inline constexpr int kMaxExtendedWorkers = 1023;
// Elements that share an exponent in extended packets. Each block has two exponent bytes.
inline constexpr int kBlockElements = 64;
inline constexpr int kExponentsPerBlock = 2;

enum class Kind : std::uint8_t {
  kContribution = 0,  // worker to switch; SwitchML's format does not distinguish contributions from results
  kResult = 1,
  kUnknownJob = 2,        // notice of the switch that it has no such job; not authenticated, so only a hint
  kOperationsDiffer = 3,  // notice of the switch to all workers of a job
};

struct Head {
  Mode mode = Mode::kExtended;
  Kind kind = Kind::kContribution;
  std::uint32_t slot = 0;
  std::uint8_t set = 0;         // 0 or 1; extended: the lowest bit of the sequence
  std::uint32_t operation = 0;  // SwitchML: its 8-bit job number; extended: fingerprint of type and length
  std::uint64_t sequence = 0;   // number of the slot's sum; SwitchML: its 32-bit tsi
  // These members are used in extended packets only.
  std::uint32_t job = 0;
  std::uint64_t epoch = 0;
  std::uint16_t rank = 0;  // rank of the sender, in contributions only
  bool shared = false;     // the elements are in shared memory (shared_slots.h), not in the packet

  friend bool operator==(const Head&, const Head&) = default;
};

// Views into a packet's bytes: exponents are int8, elements big-endian int32.
struct Packet {
  Head head;
  std::span<const std::byte> exponents;
  std::span<const std::byte> elements;  // if they are shared, decode() leaves this empty
  std::size_t shared_elements = 0;      // their number

  [[nodiscard]] std::size_t element_count() const { return head.shared ? shared_elements : elements.size() / 4; }
};

// Writable views of a packet's exponents and elements, returned by write_head().
struct Body {
  std::span<std::byte> exponents;
  std::span<std::byte> elements;
};

struct Shape {
  std::size_t exponents = 0;
  std::size_t elements = 0;

  friend bool operator==(const Shape&, const Shape&) = default;
};

// Size of the UDP payload in bytes.
[[nodiscard]] std::size_t packet_size(Mode mode, const Shape& shape);
// The same for a packet whose elements may be in shared memory.
[[nodiscard]] std::size_t packet_size(const Head& head, const Shape& shape);
// Shape of a job's largest packet.
[[nodiscard]] Shape full_shape(Mode mode, int packet_elements);

// Decodes a packet of either format. Returns nullopt unless the whole packet is well-formed. Does not check the tag.
[[nodiscard]] std::optional<Packet> decode(std::span<const std::byte> bytes);

// Writes the head into `bytes`, whose size is packet_size(). The caller then fills in the body and, in extended mode,
// calls PacketMac::seal(). The body has no elements if they are shared.
[[nodiscard]] Body write_head(std::span<std::byte> bytes, const Head& head, const Shape& shape);

}  // namespace weft::aggregation
