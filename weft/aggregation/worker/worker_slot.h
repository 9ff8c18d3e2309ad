// A worker's state of one slot: the packet in flight, and the previous one in case the switch restarts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/aggregation/packet/packet.h"
#include "weft/aggregation/packet/time.h"

namespace weft::aggregation {

struct WorkerSlot {
  // Copy of a sent packet, because the inputs may be overwritten before a retransmission.
  struct SentPacket {
    Head head;
    Shape shape;
    std::byte* memory = nullptr;  // has room for the largest packet
    std::size_t size = 0;

    [[nodiscard]] std::span<std::byte> bytes() const { return {memory, size}; }
  };

  std::uint64_t turns = 0;  // number of turns started
  bool waiting = false;     // whether it waits for the result of the last turn
  // Whether the switch lost its sums and must sum the last packet again (and, while waiting, the one before it),
  // because a peer may not have received the result.
  bool replaying = false;
  int tries = 0;
  Time first_sent_at{0};
  Time sent_at{0};  // time of the last transmission
  Time due{0};
  std::array<SentPacket, 2> sent;  // indexed by the turn's lowest bit

  [[nodiscard]] bool active() const { return waiting || replaying; }
  [[nodiscard]] SentPacket& last() { return sent[(turns - 1) & 1U]; }
  [[nodiscard]] SentPacket& before_last() { return sent[turns & 1U]; }
};

}  // namespace weft::aggregation
