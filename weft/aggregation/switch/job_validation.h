// Validation of job specifications against the packet formats and the switch's limits.
#pragma once

#include <optional>

#include "weft/aggregation/config/job.h"
#include "weft/aggregation/switch/jobs.h"
#include "weft/aggregation/switch/refusal.h"

namespace weft::aggregation {

// Memory per slot, in bytes.
[[nodiscard]] std::size_t slot_bytes(const JobSpec& spec);

// Checks the request itself, not the available resources. Returns nullopt if it is valid.
[[nodiscard]] std::optional<Refusal> check_request(const JobSpec& spec, const SwitchLimits& limits);

}  // namespace weft::aggregation
