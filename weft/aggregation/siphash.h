// SipHash-2-4 (Aumasson and Bernstein, 2012): a short keyed tag that only a holder of the key can make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/aggregation/job.h"

namespace weft::aggregation {

[[nodiscard]] std::uint64_t siphash(const PacketKey& key, std::span<const std::byte> message);

}  // namespace weft::aggregation
