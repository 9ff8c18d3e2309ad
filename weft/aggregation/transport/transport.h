// Interface of datagram transports for workers and switches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "weft/aggregation/packet/address.h"
#include "weft/aggregation/packet/time.h"

namespace weft::aggregation {

class Outbox;

// Packets of one sender that arrived together. All have the same size, except that the last may be shorter.
struct PacketRun {
  std::span<const std::byte> bytes;
  std::size_t packet_size = 0;
  Address from;
  std::uint32_t to = 0;  // local IPv4 address; 0: unknown

  template <class Visit>
  void for_each(Visit&& visit) const {
    if (bytes.empty()) return visit(bytes);  // a datagram may be empty
    for (std::size_t at = 0; at < bytes.size(); at += packet_size) {
      visit(bytes.subspan(at, std::min(packet_size, bytes.size() - at)));
    }
  }
};

// Not thread-safe, except for wake().
class Transport {
 public:
  using Receiver = std::function<void(const PacketRun& run)>;

  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual Address local() const = 0;
  // Sends and removes all packets. Packets may be lost; throws std::system_error only if a packet can never be sent.
  virtual void send(Outbox& out) = 0;
  // Number of packets that send() could not send.
  [[nodiscard]] virtual std::uint64_t lost_on_sending() const { return 0; }
  // Waits until packets arrive, wake() is called or `longest` has passed. Passes a batch of packets to `receiver` and
  // returns whether there were any.
  virtual bool receive(Duration longest, const Receiver& receiver) = 0;
  // Ends the current or next wait of receive(). Thread-safe.
  virtual void wake() = 0;

  // File descriptor that becomes readable when packets arrive, for a loop over several transports.
  [[nodiscard]] virtual int descriptor() const = 0;
  // Drops packets from other sources early; port 0 matches any port; an empty list drops all packets.
  // Before the first call, packets from all sources arrive. This only limits floods: the switch checks the sender of
  // each packet again. Returns false if there are too many sources and packets from all sources arrive.
  virtual bool accept_only(std::span<const Address> sources) = 0;
};

}  // namespace weft::aggregation
