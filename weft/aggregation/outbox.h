// Packets on their way out: consecutive ones of equal size to equal receivers can leave in one system call.
#pragma once

#include <algorithm>
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
  [[nodiscard]] std::span<std::byte> add(std::span<const Route> receivers, std::size_t size);
  [[nodiscard]] std::span<std::byte> add(const Route& receiver, std::size_t size) { return add({&receiver, 1}, size); }
  // A packet that its owner keeps where it is until the box is empty.
  void add_kept(const Route& receiver, Packet packet) { append({&receiver, 1}, packet); }
  void clear();

  [[nodiscard]] bool empty() const { return packets_.empty(); }
  [[nodiscard]] std::size_t size() const { return packets_.size(); }

  // In runs of at most `most` packets, and at most `bytes` bytes, that have one size and the same receivers:
  // visit(receivers, packets). A window of 64 that leaves as 63 and 1 costs as much as two of 32, and lets nobody begin
  // on the first while the second is on its way: runs are of equal length.
  template <class Visit>
  void for_each_run(std::size_t most, std::size_t bytes, Visit&& visit) const {
    for (std::size_t i = 0; i < packets_.size();) {
      const std::size_t fitting =
          std::clamp<std::size_t>(bytes / std::max<std::size_t>(packets_[i].size(), 1), 1, most);
      for (std::size_t left = alike(i), runs = (left + fitting - 1) / fitting; runs > 0; --runs) {
        const std::size_t length = (left + runs - 1) / runs;
        visit(receivers_of(i), std::span(packets_).subspan(i, length));
        i += length;
        left -= length;
      }
    }
  }

 private:
  struct Receivers {
    std::size_t first;
    std::size_t count;
    friend bool operator==(const Receivers&, const Receivers&) = default;
  };

  void append(std::span<const Route> receivers, Packet packet);
  [[nodiscard]] std::byte* reserve(std::size_t size);
  [[nodiscard]] std::span<const Route> receivers_of(std::size_t packet) const {
    return std::span(routes_).subspan(receivers_[packet].first, receivers_[packet].count);
  }
  // Packets from there on that have the size and the receivers of the first.
  [[nodiscard]] std::size_t alike(std::size_t first) const;

  std::vector<Packet> packets_;
  std::vector<Receivers> receivers_;  // of each packet
  std::vector<Route> routes_;
  // Pieces of memory never move, and are used again after clear().
  std::vector<std::unique_ptr<std::byte[]>> pieces_;
  std::size_t piece_ = 0;  // in use
  std::size_t used_ = 0;   // bytes of it
};

}  // namespace weft::aggregation
