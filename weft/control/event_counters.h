// Counters of the control plane: admissions, refusals by reason, dropped connections.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace weft::control {

enum class Event {
  kAdmitted,
  kChallenged,
  kRefusedWrongKey,
  kRefusedReplay,
  kRefusedNoKey,
  kRefusedNotOpen,
  kRefusedBadRequest,
  kRefusedNoRoom,
  kDroppedSlow,
  kDroppedTooMany,
  kHttpServed,
  kHttpDropped,
  kNoDescriptors,
  kCount,
};

// Returns the label in metrics.
[[nodiscard]] constexpr std::string_view name_of(Event event) {
  constexpr std::array<std::string_view, static_cast<std::size_t>(Event::kCount)> kNames{
      "admitted", "challenged",      "wrong_key",   "replayed",    "no_key",       "not_open",      "bad_request",
      "no_room",  "slow_connection", "connections", "http_served", "http_dropped", "no_descriptors"};
  return kNames[static_cast<std::size_t>(event)];
}

class EventCounters {
 public:
  void add(Event event) noexcept { counts_[static_cast<std::size_t>(event)].fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t of(Event event) const noexcept {
    return counts_[static_cast<std::size_t>(event)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Event::kCount)> counts_{};
};

}  // namespace weft::control
