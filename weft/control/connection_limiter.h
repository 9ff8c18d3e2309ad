// Accepts the control plane's connections, limits their number and closes idle ones.
//
// gRPC keeps connections whose clients send nothing or a byte now and then, which could exhaust the switch's file
// descriptors. The limiter requires an admitted request soon after a connection is accepted, and regularly afterwards.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "weft/aggregation/packet/address.h"
#include "weft/control/event_counters.h"
#include "weft/control/listener.h"
#include "weft/control/socket.h"

namespace weft::control {

struct ConnectionLimits {
  std::size_t connections = 1024;
  std::size_t connections_per_host = 256;
  std::chrono::milliseconds first_request{5'000};  // time limit for the first admitted request
  std::chrono::milliseconds idle{60'000};
};

struct Peer {
  aggregation::Address remote;
  aggregation::Address local;
};

class ConnectionLimiter {
 public:
  // Takes ownership of the descriptor.
  using OnAccept = std::function<void(int fd)>;

  ConnectionLimiter(const aggregation::Address& listen, const ConnectionLimits& limits, EventCounters& counters);
  ~ConnectionLimiter();
  ConnectionLimiter(const ConnectionLimiter&) = delete;
  ConnectionLimiter& operator=(const ConnectionLimiter&) = delete;

  void open(OnAccept on_accept);
  void close();
  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }
  [[nodiscard]] std::size_t connections() const;

  // Returns the peer of a request on the connection that gRPC calls "fd:12", or null if the connection was closed. The
  // connection is not idle while the caller holds the result.
  [[nodiscard]] std::shared_ptr<const Peer> request_from(const std::string& peer);
  // Records an admitted request, which keeps the connection open. Refused requests do not.
  void admit(const std::string& peer);

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    files::FileDescriptor copy;  // duplicate of gRPC's descriptor, for polling and shutdown
    std::shared_ptr<const Peer> peer;
    bool admitted = false;
    Clock::time_point last;
  };

  void run();
  void wait_for_events();
  void accept_pending();
  [[nodiscard]] bool is_full(std::uint32_t host) const;
  void close_idle();
  void forget(int fd);

  ConnectionLimits limits_;
  EventCounters& counters_;
  Listener listener_;
  WakeupEvent wakeup_;
  OnAccept on_accept_;
  mutable std::mutex mutex_;
  std::map<int, Connection> connections_;  // indexed by gRPC's descriptor
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace weft::control
