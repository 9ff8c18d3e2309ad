// Measures the offset between a rank's clock and rank 0's, to show the events of all ranks on one time axis.
#pragma once

#include <cstdint>

#include "weft/mpi/message/message_channel.h"

namespace weft::trace {

struct ClockOffset {
  std::int64_t offset_ns = 0;       // rank 0's steady clock minus this rank's
  std::int64_t uncertainty_ns = 0;  // bound on the error: half of the fastest round trip
};

// Returns the offset of the calling rank. Rank 0 requests the time of every other rank several times and uses the
// fastest round trip. Takes about ten microseconds per rank. Collective.
[[nodiscard]] ClockOffset clock_offset(const mpi::MessageChannel& channel);

}  // namespace weft::trace
