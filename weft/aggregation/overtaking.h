// Which packets were overtaken: answers to ones sent well after them are here, so they, a peer's, or the answer is
// lost.
//
// Links keep packets in order, mostly. To wait for a timeout, which must allow for a worker that loses its core, would
// hold a slot up for dozens of round trips.
//
// Only first sendings count. Which copy an answer is to, nobody can tell: taken for the second's it would seem to
// overtake all that was sent between the two. And a slot may wait for a peer, whom sending again does not make quicker:
// what is overtaken is told once, and then it is the clock's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace weft::aggregation {

class Overtaking {
 public:
  // A packet is lost when one sent so many packets later has been answered; 0: none ever is.
  Overtaking(std::size_t slots, int tolerated)
      : tolerated_(static_cast<std::uint64_t>(tolerated)), number_(slots, kAnswered) {}

  // For the first time.
  void sent(std::size_t slot) {
    number_[slot] = ++sent_;
    if (tolerated_ > 0) under_way_.push_back({sent_, slot});
  }
  void answered(std::size_t slot) {
    if (number_[slot] != kAnswered) newest_answered_ = std::max(newest_answered_, number_[slot]);
    number_[slot] = kAnswered;
  }
  // Whether a packet that was sent later has been answered.
  [[nodiscard]] bool is_behind(std::size_t slot) const { return number_[slot] < newest_answered_; }
  // The slot of one that was overtaken, each once.
  [[nodiscard]] std::optional<std::size_t> next() {
    while (!under_way_.empty()) {
      const auto [number, slot] = under_way_.front();
      const bool waits = number_[slot] == number;  // for the answer to that very packet
      if (waits && number + tolerated_ >= newest_answered_) return std::nullopt;
      under_way_.pop_front();
      if (waits) return slot;
    }
    return std::nullopt;
  }
  void forget() {
    under_way_.clear();
    std::ranges::fill(number_, kAnswered);
    newest_answered_ = 0;
  }

 private:
  static constexpr std::uint64_t kAnswered = 0;
  struct Packet {
    std::uint64_t number;
    std::size_t slot;
  };

  std::uint64_t tolerated_;
  std::uint64_t sent_ = 0;
  std::uint64_t newest_answered_ = 0;
  std::vector<std::uint64_t> number_;  // of each slot's packet under way
  std::deque<Packet> under_way_;       // oldest first; those answered since are passed over
};

}  // namespace weft::aggregation
