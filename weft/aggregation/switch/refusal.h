// Reasons why a switch refuses to admit a job.
#pragma once

#include <cstdint>
#include <string>

namespace weft::aggregation {

enum class RefusalReason : std::uint8_t {
  kBadWorkers,         // fewer than 1, or more than the mode supports
  kBadPacketElements,  // not supported by the mode
  kBadSlots,
  kSessionTaken,  // a live job uses this session
  kAddressTaken,  // a live kSwitchMl job has a worker at this address: packets would be ambiguous
  kTooManyJobs,
  kNoSlotsLeft,
  kNoMemoryLeft,  // not enough memory for the requested slots and elements
};
[[nodiscard]] const char* describe(RefusalReason reason);

struct Refusal {
  RefusalReason reason = RefusalReason::kBadWorkers;
  std::string text;  // states the value, the expected value and the remedy
};

}  // namespace weft::aggregation
