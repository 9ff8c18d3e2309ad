// Packets on their way out, in one piece of memory: consecutive ones of equal size to equal receivers can leave at
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/aggregation/address.h"

namespace weft::aggregation {

class Outbox {
 public:
  // Where a packet of `size` bytes for these receivers is to be written, before the next call of add().
  [[nodiscard]] std::span<std::byte> add(std::span<const Address> receivers, std::size_t size);
  [[nodiscard]] std::span<std::byte> add(const Address& receiver, std::size_t size) {
    return add({&receiver, 1}, size);
  }
  void clear();

  [[nodiscard]] bool empty() const { return parcels_.empty(); }
  [[nodiscard]] std::size_t packets() const { return parcels_.size(); }

  // The longest runs of at most `most` packets, and at most `bytes` bytes, that have one size and the same receivers:
  // visit(receivers, bytes of the run, packet size).
  template <class Visit>
  void for_each_run(std::size_t most, std::size_t bytes, Visit&& visit) const {
    for (std::size_t i = 0; i < parcels_.size();) {
      const std::size_t length = run_length(i, most, bytes);
      const Parcel& first = parcels_[i];
      visit(receivers(first), std::span<const std::byte>(memory_).subspan(first.offset, length * first.size),
            first.size);
      i += length;
    }
  }

 private:
  struct Parcel {
    std::size_t offset;
    std::size_t size;
    std::size_t first_receiver;
    std::size_t receivers;
  };

  [[nodiscard]] std::span<const Address> receivers(const Parcel& parcel) const {
    return std::span<const Address>(receivers_).subspan(parcel.first_receiver, parcel.receivers);
  }
  [[nodiscard]] bool goes_with_last(std::span<const Address> to) const;
  [[nodiscard]] std::size_t run_length(std::size_t first, std::size_t most, std::size_t bytes) const;

  std::vector<std::byte> memory_;  // its size only grows
  std::size_t used_ = 0;
  std::vector<Address> receivers_;
  std::vector<Parcel> parcels_;
};

}  // namespace weft::aggregation
