#include "weft/aggregation/switch/slot_pool.h"

#include <algorithm>

#include "weft/aggregation/packet/elements.h"

namespace weft::aggregation {
namespace {

// Number of 64-bit words in a bitmap of workers.
std::size_t words_for(int workers) { return (static_cast<std::size_t>(workers) + 63) / 64; }

}  // namespace

SlotPool::SlotPool(int slots, int workers, const Shape& largest)
    : slots_(slots), workers_(workers), largest_(largest), seen_words_(words_for(workers)) {
  const std::size_t sums = 2 * static_cast<std::size_t>(slots);
  sums_.resize(sums);
  seen_.resize(sums * seen_words_);
  elements_.resize(sums * largest.elements);
  exponents_.resize(sums * largest.exponents);
}

std::size_t SlotPool::slot_bytes(int workers, const Shape& largest) {
  return 2 * (sizeof(Sum) + words_for(workers) * sizeof(std::uint64_t) + largest.elements * sizeof(std::int32_t) +
              largest.exponents);
}

SlotPool::Outcome SlotPool::add(const Packet& packet, const Turn& turn, int rank, std::uint32_t tag) {
  const std::size_t index = index_of(packet.head.slot, packet.head.set);
  Sum& sum = sums_[index];
  if (turn < sum.turn) return Outcome::kLate;
  if (turn > sum.turn) {
    begin(index, packet, turn, tag);
    return count_in(index, rank);
  }
  if (sum.shape != Shape{packet.exponents.size(), packet.element_count()} || sum.tag != tag) return Outcome::kBadShape;
  if (was_seen(index, rank)) return repeated(sum);
  add_elements({elements_.data() + index * largest_.elements, sum.shape.elements}, packet.elements);
  raise_exponents({exponents_.data() + index * largest_.exponents, sum.shape.exponents}, packet.exponents);
  return count_in(index, rank);
}

std::span<const std::int32_t> SlotPool::elements(std::uint32_t slot, int set) const {
  const std::size_t index = index_of(slot, set);
  return {elements_.data() + index * largest_.elements, sums_[index].shape.elements};
}

std::span<const std::int8_t> SlotPool::exponents(std::uint32_t slot, int set) const {
  const std::size_t index = index_of(slot, set);
  return {exponents_.data() + index * largest_.exponents, sums_[index].shape.exponents};
}

std::uint64_t& SlotPool::seen_word(std::size_t index, int rank) {
  return seen_[index * seen_words_ + static_cast<std::size_t>(rank) / 64];
}

bool SlotPool::was_seen(std::size_t index, int rank) { return (seen_word(index, rank) >> (rank % 64) & 1U) != 0; }

// A newer turn always takes over the set: its sender has received the other set's sum, so all workers contributed to
// that sum and have received this set's previous one.
void SlotPool::begin(std::size_t index, const Packet& packet, const Turn& turn, std::uint32_t tag) {
  Sum& sum = sums_[index];
  if (sum.missing == 0) ++busy_;
  sum = {turn, {packet.exponents.size(), packet.element_count()}, tag, workers_};
  std::fill_n(seen_.begin() + static_cast<std::ptrdiff_t>(index * seen_words_), seen_words_, 0);
  set_elements({elements_.data() + index * largest_.elements, sum.shape.elements}, packet.elements);
  set_exponents({exponents_.data() + index * largest_.exponents, sum.shape.exponents}, packet.exponents);
}

SlotPool::Outcome SlotPool::count_in(std::size_t index, int rank) {
  seen_word(index, rank) |= std::uint64_t{1} << (rank % 64);
  if (--sums_[index].missing > 0) return Outcome::kAdded;
  --busy_;
  return Outcome::kCompleted;
}

}  // namespace weft::aggregation
