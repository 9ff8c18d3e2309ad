// Accepts the control plane's connections, limits their number and rate, and closes idle ones.
//
// gRPC keeps connections whose clients send nothing or a byte now and then, which could exhaust the switch's file
// descriptors. The limiter requires an admitted request soon after a connection is accepted, and regularly afterwards.
// gRPC also accepts requests faster than it answers them and buffers replies that the client does not read, which could
// exhaust the memory. It therefore gets its bytes through a Relay.
#pragma once

#include <atomic>
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
#include "weft/control/relay.h"
#include "weft/control/socket.h"
#include "weft/control/token_bucket.h"

namespace weft::control {

struct ConnectionLimits {
  std::size_t connections = 1024;
  std::size_t connections_per_host = 256;
  std::chrono::milliseconds first_request{5'000};  // time limit for the first admitted request
  std::chrono::milliseconds idle{60'000};
  // Frames that a client may send at once and per second, in units of FrameMeter: about 16 requests. A client that
  // sends more has to wait.
  double burst = 128;
  double rate = 128;
  // The same for all connections of a host that have no admitted request yet.
  double host_burst = 4096;
  double host_rate = 2048;
};

struct Peer {
  aggregation::Address remote;
  aggregation::Address local;
  bool on_this_machine = false;
};

class ConnectionLimiter {
 public:
  // Takes ownership of the descriptor: the end of a socket pair that stands for the connection.
  using OnAccept = std::function<void(int fd)>;

  ConnectionLimiter(const aggregation::Address& listen, const ConnectionLimits& limits, EventCounters& counters);
  ~ConnectionLimiter();
  ConnectionLimiter(const ConnectionLimiter&) = delete;
  ConnectionLimiter& operator=(const ConnectionLimiter&) = delete;

  void open(OnAccept on_accept);
  // Accepts no more connections; existing ones continue. Thread-safe.
  void stop_accepting() { accepting_ = false; }
  // Delivers the replies that gRPC has written and closes all connections.
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
    Relay relay;
    std::shared_ptr<const Peer> peer;
    TokenBucket budget;
    bool admitted = false;
    Clock::time_point last;
  };
  // A connection that poll() reported, and whether it is closed.
  struct Ready {
    int fd;
    bool closed;
  };

  void run();
  [[nodiscard]] std::vector<Ready> wait_for_events();
  // Copies the bytes of ready connections.
  void relay(const std::vector<Ready>& ready);
  [[nodiscard]] bool may_read(const Connection& connection, Clock::time_point now) const;
  // Returns false if the connection is closed.
  [[nodiscard]] bool advance(Connection& connection, Clock::time_point now);
  void accept_pending();
  [[nodiscard]] bool is_full(std::uint32_t host) const;
  void close_idle();

  ConnectionLimits limits_;
  EventCounters& counters_;
  Listener listener_;
  WakeupEvent wakeup_;
  OnAccept on_accept_;
  mutable std::mutex mutex_;
  std::map<int, Connection> connections_;       // indexed by gRPC's descriptor
  std::map<std::uint32_t, TokenBucket> hosts_;  // budgets of hosts with connections, or that are not full again
  int first_ = 0;                               // connection that is served first, so that all get their turn
  bool closing_ = false;
  std::atomic<bool> accepting_{true};
  std::thread thread_;
};

}  // namespace weft::control
