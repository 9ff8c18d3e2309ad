// A datagram endpoint: what a worker and a switch need of a network. UDP sockets are one; DPDK and RDMA would be
// others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "weft/aggregation/address.h"
#include "weft/aggregation/time.h"

namespace weft::aggregation {

class Outbox;

// Packets of one sender that came together: all of one size, but for the last, which may be shorter.
struct PacketRun {
  std::span<const std::byte> bytes;
  std::size_t packet_size = 0;
  Address from;
  std::uint32_t to = 0;  // IPv4, of this host's addresses; 0: not known

  template <class Visit>
  void for_each(Visit&& visit) const {
    if (bytes.empty()) return visit(bytes);  // a datagram may be empty
    for (std::size_t at = 0; at < bytes.size(); at += packet_size) {
      visit(bytes.subspan(at, std::min(packet_size, bytes.size() - at)));
    }
  }
};

// One thread at a time, but for wake().
class Transport {
 public:
  using Receiver = std::function<void(const PacketRun& run)>;

  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual Address local() const = 0;
  // Sends what the box holds and empties it. Packets may be lost, as everywhere; throws std::system_error only where
  // no packet could ever leave.
  virtual void send(Outbox& out) = 0;
  // Packets that send() knows did not leave.
  [[nodiscard]] virtual std::uint64_t lost_on_sending() const { return 0; }
  // Waits until packets are here, wake() is called or `longest` has passed; hands in a batch of those that are here.
  // Whether there were any.
  virtual bool receive(Duration longest, const Receiver& receiver) = 0;
  // Ends a receive() that waits, or the next one. From any thread.
  virtual void wake() = 0;

  // What becomes readable when packets are here, for a loop over several transports.
  [[nodiscard]] virtual int descriptor() const = 0;
  // Packets from elsewhere need not be handed in, and should not take room from those that are; port 0: any. None:
  // nobody's. Before the first call all may come in. Only a help against floods: who sent a packet is checked again.
  // False: there are too many, and packets from anywhere come in.
  virtual bool accept_only(std::span<const Address> sources) = 0;
};

}  // namespace weft::aggregation
