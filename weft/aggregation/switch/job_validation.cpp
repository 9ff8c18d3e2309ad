#include "weft/aggregation/switch/job_validation.h"

#include "weft/aggregation/packet/extended_format.h"
#include "weft/aggregation/packet/packet.h"
#include "weft/aggregation/packet/switchml_format.h"
#include "weft/aggregation/switch/slot_pool.h"

namespace weft::aggregation {
namespace {

std::optional<Refusal> check_workers(const JobSpec& spec) {
  const int most = spec.mode == Mode::kSwitchMl ? kMaxSwitchMlWorkers : kMaxExtendedWorkers;
  if (spec.workers >= 1 && spec.workers <= most && spec.addresses.size() <= static_cast<std::size_t>(spec.workers)) {
    return std::nullopt;
  }
  return Refusal{RefusalReason::kBadWorkers,
                 std::to_string(spec.workers) + " workers with " + std::to_string(spec.addresses.size()) +
                     " addresses; expected 1 to " + std::to_string(most) +
                     " workers and no more addresses than workers" +
                     (spec.workers > most && spec.mode == Mode::kSwitchMl ? "; extended mode supports more" : "")};
}

std::optional<Refusal> check_packets(const JobSpec& spec, const SwitchLimits& limits) {
  const std::string came = std::to_string(spec.packet_elements) + " elements per packet; expected ";
  if (spec.mode == Mode::kSwitchMl) {
    if (spec.packet_elements > 0 && switchml::is_packet_elements(static_cast<std::size_t>(spec.packet_elements))) {
      return std::nullopt;
    }
    return Refusal{RefusalReason::kBadPacketElements, came + "64 or 256"};
  }
  const int most = extended::largest_packet_elements(static_cast<std::size_t>(limits.largest_payload));
  if (spec.packet_elements >= kBlockElements && spec.packet_elements <= most &&
      spec.packet_elements % kBlockElements == 0) {
    return std::nullopt;
  }
  return Refusal{RefusalReason::kBadPacketElements,
                 came + "a multiple of " + std::to_string(kBlockElements) + " up to " + std::to_string(most)};
}

}  // namespace

const char* describe(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kBadWorkers:
      return "bad_workers";
    case RefusalReason::kBadPacketElements:
      return "bad_packet_elements";
    case RefusalReason::kBadSlots:
      return "bad_slots";
    case RefusalReason::kSessionTaken:
      return "session_taken";
    case RefusalReason::kAddressTaken:
      return "address_taken";
    case RefusalReason::kTooManyJobs:
      return "too_many_jobs";
    case RefusalReason::kNoSlotsLeft:
      return "no_slots_left";
    case RefusalReason::kNoMemoryLeft:
      return "no_memory_left";
  }
  return "unknown";
}

std::size_t slot_bytes(const JobSpec& spec) {
  return SlotPool::slot_bytes(spec.workers, full_shape(spec.mode, spec.packet_elements));
}

std::optional<Refusal> check_request(const JobSpec& spec, const SwitchLimits& limits) {
  if (auto refusal = check_workers(spec)) return refusal;
  if (auto refusal = check_packets(spec, limits)) return refusal;
  if (spec.slots < 0) {
    return Refusal{RefusalReason::kBadSlots,
                   std::to_string(spec.slots) + " slots; expected at least 1, or 0 for the maximum per job"};
  }
  return std::nullopt;
}

}  // namespace weft::aggregation
