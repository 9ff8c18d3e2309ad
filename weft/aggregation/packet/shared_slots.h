// Memory that a worker shares with a switch on the same machine, for the elements of their packets.
//
// The packets themselves still travel through sockets, with a flag instead of the elements. A packet's slot and set
// determine the place of its elements. No place is overwritten too early: a worker reuses the place of turn t for turn
// t + 2 after the sum of turn t + 1, so the switch has then read turn t; the switch reuses a result's place when all
// workers have contributed to turn t + 2, so they have then read the result of turn t.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/aggregation/packet/packet.h"

namespace weft::aggregation {

// Identifies shared memory on a machine: an open file of a process, and random bytes at its start.
struct SharedMemoryName {
  int process = 0;  // 0: none
  int descriptor = -1;
  std::array<std::uint8_t, 16> cookie{};

  friend bool operator==(const SharedMemoryName&, const SharedMemoryName&) = default;
};

// View of the places; does not own the memory.
class SharedSlots {
 public:
  // Has no places.
  SharedSlots() = default;
  SharedSlots(std::span<std::byte> memory, int packet_elements)
      : memory_(memory), place_bytes_(kElementBytes * static_cast<std::size_t>(packet_elements)) {}

  [[nodiscard]] static std::size_t bytes(int slots, int packet_elements) {
    return kPlaces * kElementBytes * static_cast<std::size_t>(slots) * static_cast<std::size_t>(packet_elements);
  }
  [[nodiscard]] bool empty() const { return memory_.empty(); }
  // Whether there is a place for every packet of these slots.
  [[nodiscard]] bool covers(int slots, int packet_elements) const {
    return kElementBytes * static_cast<std::size_t>(packet_elements) <= place_bytes_ &&
           kPlaces * static_cast<std::size_t>(slots) * place_bytes_ <= memory_.size();
  }

  // Place of a packet's elements: contributions and results have different places. Empty if there is no such place.
  [[nodiscard]] std::span<std::byte> elements_of(const Head& head, std::size_t count) const {
    const std::size_t place = kPlaces * head.slot + (head.kind == Kind::kResult ? 2U : 0U) + head.set;
    const bool exists = kElementBytes * count <= place_bytes_ && (place + 1) * place_bytes_ <= memory_.size();
    return exists ? memory_.subspan(place * place_bytes_, kElementBytes * count) : std::span<std::byte>();
  }

 private:
  static constexpr std::size_t kPlaces = 4;  // per slot: two sets of contributions and of results
  static constexpr std::size_t kElementBytes = 4;

  std::span<std::byte> memory_;
  std::size_t place_bytes_ = 0;
};

}  // namespace weft::aggregation
