#include "weft/aggregation/outbox.h"

#include <algorithm>

namespace weft::aggregation {

std::span<std::byte> Outbox::add(std::span<const Address> to, std::size_t size) {
  if (used_ + size > memory_.size()) memory_.resize(2 * (used_ + size));
  if (goes_with_last(to)) {
    parcels_.push_back({used_, size, parcels_.back().first_receiver, to.size()});
  } else {
    parcels_.push_back({used_, size, receivers_.size(), to.size()});
    receivers_.insert(receivers_.end(), to.begin(), to.end());
  }
  used_ += size;
  return std::span(memory_).subspan(used_ - size, size);
}

void Outbox::clear() {
  used_ = 0;
  receivers_.clear();
  parcels_.clear();
}

bool Outbox::goes_with_last(std::span<const Address> to) const {
  return !parcels_.empty() && std::ranges::equal(receivers(parcels_.back()), to);
}

std::size_t Outbox::run_length(std::size_t first, std::size_t most, std::size_t bytes) const {
  const Parcel& start = parcels_[first];
  std::size_t length = 1;
  while (length < most && first + length < parcels_.size() && (length + 1) * start.size <= bytes) {
    const Parcel& next = parcels_[first + length];
    if (next.size != start.size || next.first_receiver != start.first_receiver) break;
    ++length;
  }
  return length;
}

}  // namespace weft::aggregation
