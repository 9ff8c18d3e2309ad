// A datagram endpoint: what a worker and a switch need of a network. UDP sockets are one; DPDK and RDMA would be
// others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "weft/aggregation/address.h"
#include "weft/aggregation/time.h"

namespace weft::aggregation {

class Outbox;

// One thread at a time, but for wake().
class Transport {
 public:
  using Receiver = std::function<void(std::span<const std::byte> packet, const Address& from)>;

  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual Address local() const = 0;
  // Sends what the box holds and empties it. Packets may be lost, as everywhere; throws std::system_error only where
  // no packet could ever leave.
  virtual void send(Outbox& out) = 0;
  // Waits until packets are here, wake() is called or `longest` has passed; hands in a batch of those that are here.
  // How many.
  virtual std::size_t receive(Duration longest, const Receiver& receiver) = 0;
  // Ends a receive() that waits, or the next one. From any thread.
  virtual void wake() = 0;
};

}  // namespace weft::aggregation
