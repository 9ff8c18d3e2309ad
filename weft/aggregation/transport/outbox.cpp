#include "weft/aggregation/transport/outbox.h"

#include <algorithm>

namespace weft::aggregation {
namespace {

constexpr std::size_t kPieceBytes = 1 << 18;  // room for several of the largest packets

}  // namespace

std::span<std::byte> Outbox::add(std::span<const Route> receivers, std::size_t size, std::size_t shared) {
  const std::span<std::byte> packet(reserve(size), size);
  append(receivers, packet, shared);
  return packet;
}

void Outbox::append(std::span<const Route> receivers, Packet packet, std::size_t shared) {
  if (!packets_.empty() && std::ranges::equal(receivers_of(packets_.size() - 1), receivers)) {
    receivers_.push_back(receivers_.back());
  } else {
    receivers_.push_back({routes_.size(), receivers.size()});
    routes_.insert(routes_.end(), receivers.begin(), receivers.end());
  }
  packets_.push_back(packet);
  last_bytes_ = packet.size() + shared / kSharedDiscount;
  bytes_ += last_bytes_;
}

std::byte* Outbox::reserve(std::size_t size) {
  if (used_ + size > kPieceBytes) ++piece_, used_ = 0;
  if (piece_ == pieces_.size()) pieces_.push_back(std::make_unique_for_overwrite<std::byte[]>(kPieceBytes));
  used_ += size;
  return pieces_[piece_].get() + used_ - size;
}

void Outbox::clear() {
  packets_.clear();
  receivers_.clear();
  routes_.clear();
  piece_ = used_ = bytes_ = 0;
}

std::size_t Outbox::alike(std::size_t first) const {
  const std::size_t size = packets_[first].size();
  std::size_t count = 1;
  for (; first + count < packets_.size() && receivers_[first + count] == receivers_[first]; ++count) {
    const std::size_t next = packets_[first + count].size();
    if (next != size) return next > 0 && next < size ? count + 1 : count;
  }
  return count;
}

}  // namespace weft::aggregation
