// Outgoing packets. Consecutive packets of equal size to the same receivers, and a shorter one after them, can be sent
// in one system call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/aggregation/packet/address.h"

namespace weft::aggregation {

class Outbox {
 public:
  // Limits of a message with several packets. Some kernels stall on more than 64 segments. All segments together must
  // fit into an IPv4 packet.
  static constexpr std::size_t kMostSegments = 64;
  static constexpr std::size_t kMostBytes = 65'507;
  using Packet = std::span<const std::byte>;

  // Adds a packet for these receivers and returns its memory, which the caller fills. `shared`: bytes of its elements
  // in shared memory, which count in part when the Outbox decides whether to send.
  [[nodiscard]] std::span<std::byte> add(std::span<const Route> receivers, std::size_t size, std::size_t shared = 0);
  [[nodiscard]] std::span<std::byte> add(const Route& receiver, std::size_t size) { return add({&receiver, 1}, size); }
  // Adds a packet without copying it. The caller keeps it unchanged until clear().
  void add_kept(const Route& receiver, Packet packet, std::size_t shared = 0) {
    append({&receiver, 1}, packet, shared);
  }
  void clear();

  [[nodiscard]] bool empty() const { return packets_.empty(); }
  [[nodiscard]] std::size_t size() const { return packets_.size(); }
  // Whether the packets justify a system call. Sending then instead of later lets the receivers start earlier, and the
  // packets are still in the cache.
  [[nodiscard]] bool is_worth_sending() const { return packets_.size() >= kManyPackets || bytes_ >= kManyBytes; }

  // Whether another packet like the last would not fit into one message with the others.
  [[nodiscard]] bool is_full_message() const {
    return !packets_.empty() && (packets_.size() >= kMostSegments || bytes_ + last_bytes_ > kMostBytes);
  }

  // Calls visit(receivers, packets) for runs of consecutive packets to the same receivers. All packets of a run have
  // the same size, except that the last may be shorter. A run has at most `most` packets and `bytes` bytes. Runs have
  // about equal length: 64 packets are sent as 32 + 32 rather than 63 + 1, which costs the same but lets the receivers
  // start earlier.
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
  static constexpr std::size_t kManyPackets = 32;
  static constexpr std::size_t kManyBytes = 32 << 10;  // half of the largest message
  // Shared elements are not copied, so that system calls dominate: four of the largest packets are sent at once.
  static constexpr std::size_t kSharedDiscount = 4;

  struct Receivers {
    std::size_t first;
    std::size_t count;
    friend bool operator==(const Receivers&, const Receivers&) = default;
  };

  void append(std::span<const Route> receivers, Packet packet, std::size_t shared);
  [[nodiscard]] std::byte* reserve(std::size_t size);
  [[nodiscard]] std::span<const Route> receivers_of(std::size_t packet) const {
    return std::span(routes_).subspan(receivers_[packet].first, receivers_[packet].count);
  }
  // Number of consecutive packets from `first` on that can be in one run.
  [[nodiscard]] std::size_t alike(std::size_t first) const;

  std::vector<Packet> packets_;
  std::size_t bytes_ = 0;             // of all packets, including a part of the shared elements
  std::size_t last_bytes_ = 0;        // of the last one
  std::vector<Receivers> receivers_;  // per packet
  std::vector<Route> routes_;
  // Memory blocks; they never move and are reused after clear().
  std::vector<std::unique_ptr<std::byte[]>> pieces_;
  std::size_t piece_ = 0;  // index of the current block
  std::size_t used_ = 0;   // bytes used in the current block
};

}  // namespace weft::aggregation
