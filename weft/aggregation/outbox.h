// Packets on their way out: consecutive ones of equal size to equal receivers can leave in one system call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/aggregation/address.h"

namespace weft::aggregation {

class Outbox {
 public:
  using Packet = std::span<const std::byte>;

  // Where a packet of `size` bytes for these receivers is to be written.
  [[nodiscard]] std::span<std::byte> add(std::span<const Address> receivers, std::size_t size);
  [[nodiscard]] std::span<std::byte> add(const Address& receiver, std::size_t size) {
    return add({&receiver, 1}, size);
  }
  // A packet that its owner keeps where it is until the box is empty.
  void add_kept(const Address& receiver, Packet packet) { append({&receiver, 1}, packet); }
  void clear();

  [[nodiscard]] bool empty() const { return packets_.empty(); }
  [[nodiscard]] std::size_t size() const { return packets_.size(); }

  // The longest runs of at most `most` packets, and at most `bytes` bytes, that have one size and the same receivers:
  // visit(receivers, packets).
  template <class Visit>
  void for_each_run(std::size_t most, std::size_t bytes, Visit&& visit) const {
    for (std::size_t i = 0; i < packets_.size();) {
      const std::size_t length = run_length(i, most, bytes);
      visit(receivers_of(i), std::span(packets_).subspan(i, length));
      i += length;
    }
  }

 private:
  struct Receivers {
    std::size_t first;
    std::size_t count;
    friend bool operator==(const Receivers&, const Receivers&) = default;
  };

  void append(std::span<const Address> receivers, Packet packet);
  [[nodiscard]] std::byte* reserve(std::size_t size);
  [[nodiscard]] std::span<const Address> receivers_of(std::size_t packet) const {
    return std::span(addresses_).subspan(receivers_[packet].first, receivers_[packet].count);
  }
  [[nodiscard]] std::size_t run_length(std::size_t first, std::size_t most, std::size_t bytes) const;

  std::vector<Packet> packets_;
  std::vector<Receivers> receivers_;  // of each packet
  std::vector<Address> addresses_;
  // Pieces of memory never move, and are used again after clear().
  std::vector<std::unique_ptr<std::byte[]>> pieces_;
  std::size_t piece_ = 0;  // in use
  std::size_t used_ = 0;   // bytes of it
};

}  // namespace weft::aggregation
