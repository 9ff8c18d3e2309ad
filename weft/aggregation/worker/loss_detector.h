// Detects lost packets by reordering: if a packet sent much later has been answered, the packet, a peer's packet or the
// answer is lost.
//
// Links mostly keep packets in order. The retransmission timeout must allow for a worker that is descheduled, so
// waiting for it would stall a slot for dozens of round trips.
//
// Only first transmissions count, because an answer does not show which copy it answers. Each loss is reported once;
// afterwards the timeout handles it, because the slot may be waiting for a slow peer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace weft::aggregation {

class LossDetector {
 public:
  // A packet counts as lost when one sent more than `threshold` packets later has been answered; 0: never.
  LossDetector(std::size_t slots, int threshold)
      : threshold_(static_cast<std::uint64_t>(threshold)), number_(slots, kAnswered) {}

  // Records a first transmission.
  void sent(std::size_t slot) {
    number_[slot] = ++sent_;
    if (threshold_ > 0) in_flight_.push_back({sent_, slot});
  }
  void answered(std::size_t slot) {
    if (number_[slot] != kAnswered) newest_answered_ = std::max(newest_answered_, number_[slot]);
    number_[slot] = kAnswered;
  }
  // Whether a packet sent later has been answered.
  [[nodiscard]] bool is_behind(std::size_t slot) const { return number_[slot] < newest_answered_; }
  // Returns the slot of the next lost packet. Reports each loss once.
  [[nodiscard]] std::optional<std::size_t> next() {
    while (!in_flight_.empty()) {
      const auto [number, slot] = in_flight_.front();
      const bool waits = number_[slot] == number;  // whether the slot waits for the answer to this packet
      if (waits && number + threshold_ >= newest_answered_) return std::nullopt;
      in_flight_.pop_front();
      if (waits) return slot;
    }
    return std::nullopt;
  }
  void forget() {
    in_flight_.clear();
    std::ranges::fill(number_, kAnswered);
    newest_answered_ = 0;
  }

 private:
  static constexpr std::uint64_t kAnswered = 0;
  struct Packet {
    std::uint64_t number;
    std::size_t slot;
  };

  std::uint64_t threshold_;
  std::uint64_t sent_ = 0;
  std::uint64_t newest_answered_ = 0;
  std::vector<std::uint64_t> number_;  // per slot: number of the packet in flight
  std::deque<Packet> in_flight_;       // oldest first; may contain answered packets
};

}  // namespace weft::aggregation
