// Whether a job can be admitted: what it asks for against the formats and the switch's limits.
#pragma once

#include <optional>

#include "weft/aggregation/job.h"
#include "weft/aggregation/jobs.h"

namespace weft::aggregation {

// Of memory, that one of its slots takes.
[[nodiscard]] std::size_t slot_bytes(const JobSpec& spec);

// Why not, as far as the request itself tells; nothing if it is sound.
[[nodiscard]] std::optional<Refusal> check_request(const JobSpec& spec, const SwitchLimits& limits);

}  // namespace weft::aggregation
