// How far a rank's clock is from rank 0's, so that the ranks' events can be shown on one axis.
#pragma once

#include <cstdint>

#include "weft/trace/conversation.h"

namespace weft::trace {

struct ClockOffset {
  std::int64_t offset_ns = 0;       // add it to a time of this rank's steady clock to get rank 0's
  std::int64_t uncertainty_ns = 0;  // half of the fastest round trip: the true offset is not further away
};

// Collective. Rank 0 asks every other rank for the time, several times; the fastest answer counts, as the others waited
// somewhere. Takes some ten microseconds a rank.
[[nodiscard]] ClockOffset clock_offset(const Conversation& talk);

}  // namespace weft::trace
