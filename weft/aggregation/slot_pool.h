// The slots of one job: each sums one packet's worth of numbers over all workers, in two sets that take turns.
//
// A worker sends its next packet for a slot only after it has the slot's last sum, so workers are at most one turn
// apart and two sets are enough: while the faster ones fill one, the other still holds what the slower ones may ask for
// again.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/aggregation/packet.h"

namespace weft::aggregation {

// Which of a slot's sums a packet belongs to. SwitchML's clients begin their numbering anew with every operation; in
// extended packets it goes on, and `operation` is 0.
struct Turn {
  std::int64_t operation = -1;
  std::uint64_t sequence = 0;

  friend auto operator<=>(const Turn&, const Turn&) = default;
};

class SlotPool {
 public:
  SlotPool(int slots, int workers, const Shape& largest);
  // Of memory, that one slot takes.
  [[nodiscard]] static std::size_t slot_bytes(int workers, const Shape& largest);

  enum class Outcome : std::uint8_t {
    kAdded,      // counted in; others are still missing
    kCompleted,  // counted in, and it was the last
    kDuplicate,  // was counted in before; the sum is not complete
    kAnswer,     // was counted in before, and the sum is there: the sender lost it
    kLate,       // of a sum that everybody has had: must not touch anything
    kBadShape,   // the others sent other numbers of elements or exponents, or belong to another operation
  };

  // `tag` is the same in all packets of a sum, or the packet is of bad shape: extended packets' operation.
  Outcome add(const Packet& packet, const Turn& turn, int rank, std::uint32_t tag);

  // The sum last added to; after kCompleted and kAnswer it is complete.
  [[nodiscard]] Shape shape(std::uint32_t slot, int set) const { return sum(slot, set).shape; }
  [[nodiscard]] std::span<const std::int32_t> elements(std::uint32_t slot, int set) const;
  [[nodiscard]] std::span<const std::int8_t> exponents(std::uint32_t slot, int set) const;

  [[nodiscard]] int slots() const { return slots_; }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(slots_) * slot_bytes(workers_, largest_); }
  // How many hold a sum that is not complete.
  [[nodiscard]] int busy() const { return busy_; }
  // The newest turn that any packet of the set had; operation -1 for one never used.
  [[nodiscard]] const Turn& turn(std::uint32_t slot, int set) const { return sum(slot, set).turn; }

 private:
  struct Sum {
    Turn turn;
    Shape shape;
    std::uint32_t tag = 0;
    int missing = 0;  // workers; a counter, because a full bitmap can be overtaken
  };

  // Slots come one after the other, of one set: so they lie in memory.
  [[nodiscard]] std::size_t index_of(std::uint32_t slot, int set) const {
    return static_cast<std::size_t>(set) * static_cast<std::size_t>(slots_) + slot;
  }
  [[nodiscard]] const Sum& sum(std::uint32_t slot, int set) const { return sums_[index_of(slot, set)]; }
  [[nodiscard]] std::uint64_t& seen_word(std::size_t index, int rank);
  [[nodiscard]] bool was_seen(std::size_t index, int rank);
  void begin(std::size_t index, const Packet& packet, const Turn& turn, std::uint32_t tag);
  Outcome repeated(const Sum& sum) const { return sum.missing == 0 ? Outcome::kAnswer : Outcome::kDuplicate; }
  Outcome count_in(std::size_t index, int rank);

  int slots_;
  int workers_;
  Shape largest_;
  std::size_t seen_words_;  // per sum
  int busy_ = 0;
  std::vector<Sum> sums_;            // by index_of
  std::vector<std::uint64_t> seen_;  // bitmaps of workers
  std::vector<std::int32_t> elements_;
  std::vector<std::int8_t> exponents_;
};

}  // namespace weft::aggregation
