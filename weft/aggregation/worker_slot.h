// One slot as a worker sees it: the packet it waits for an answer to, and the one before, in case the switch forgets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/aggregation/packet.h"
#include "weft/aggregation/time.h"

namespace weft::aggregation {

struct WorkerSlot {
  // Kept as sent, because inputs may be overwritten by then.
  struct SentPacket {
    Head head;
    Shape shape;
    std::byte* memory = nullptr;  // for the largest packet
    std::size_t size = 0;

    [[nodiscard]] std::span<std::byte> bytes() const { return {memory, size}; }
  };

  std::uint64_t turns = 0;  // begun so far
  bool waiting = false;     // for the result of the last one
  // The switch lost its sums: the last packet, and while waiting the one before it, must be summed once more, because a
  // peer may not have had the result.
  bool replaying = false;
  int tries = 0;
  Time first_sent_at{0};
  Time sent_at{0};  // last
  Time due{0};
  std::array<SentPacket, 2> sent;  // by the turn's lowest bit

  [[nodiscard]] bool active() const { return waiting || replaying; }
  [[nodiscard]] SentPacket& last() { return sent[(turns - 1) & 1U]; }
  [[nodiscard]] SentPacket& before_last() { return sent[turns & 1U]; }
};

}  // namespace weft::aggregation
