// The slots of one job. Each slot sums one packet of every worker, in two alternating sets.
//
// A worker sends the next packet of a slot only after it has received the slot's previous sum, so workers are at most
// one turn apart and two sets suffice: while the faster workers fill one set, the other holds the sum that slower
// workers may request again.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/aggregation/packet/packet.h"

namespace weft::aggregation {

// Identifies a sum of a slot. SwitchML's clients restart their numbering with every operation; extended packets do not,
// and their `operation` is 0.
struct Turn {
  std::int64_t operation = -1;
  std::uint64_t sequence = 0;

  friend auto operator<=>(const Turn&, const Turn&) = default;
};

class SlotPool {
 public:
  SlotPool(int slots, int workers, const Shape& largest);
  // Memory per slot, in bytes.
  [[nodiscard]] static std::size_t slot_bytes(int workers, const Shape& largest);

  enum class Outcome : std::uint8_t {
    kAdded,      // added; other workers are missing
    kCompleted,  // added, and the sum is complete
    kDuplicate,  // already added; the sum is not complete
    kAnswer,     // already added, and the sum is complete: the sender lost the result
    kLate,       // belongs to a sum that all workers have received; ignored
    kBadShape,   // the number of elements or exponents, or the operation, differs from the other workers'
  };

  // `tag` must be the same in all packets of a sum (extended packets: the operation); otherwise kBadShape.
  Outcome add(const Packet& packet, const Turn& turn, int rank, std::uint32_t tag);

  // The sum in a set; complete after kCompleted and kAnswer.
  [[nodiscard]] Shape shape(std::uint32_t slot, int set) const { return sum(slot, set).shape; }
  [[nodiscard]] std::span<const std::int32_t> elements(std::uint32_t slot, int set) const;
  [[nodiscard]] std::span<const std::int8_t> exponents(std::uint32_t slot, int set) const;

  [[nodiscard]] int slots() const { return slots_; }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(slots_) * slot_bytes(workers_, largest_); }
  // Number of incomplete sums.
  [[nodiscard]] int busy() const { return busy_; }
  // Newest turn of a set; operation -1 if the set has never been used.
  [[nodiscard]] const Turn& turn(std::uint32_t slot, int set) const { return sum(slot, set).turn; }

 private:
  struct Sum {
    Turn turn;
    Shape shape;
    std::uint32_t tag = 0;
    int missing = 0;  // workers that have not contributed; seen_ cannot replace it, because faster peers clear its bits
  };

  // Consecutive packets use consecutive slots of one set, so these are adjacent in memory.
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
  std::size_t seen_words_;  // words of seen_ per sum
  int busy_ = 0;
  std::vector<Sum> sums_;            // indexed by index_of()
  std::vector<std::uint64_t> seen_;  // per sum: bitmap of the workers it includes
  std::vector<std::int32_t> elements_;
  std::vector<std::int8_t> exponents_;
};

}  // namespace weft::aggregation
