// Accepts the control plane's connections and shows out those that hold one without asking for anything.
//
// gRPC by itself keeps a connection whose client sends nothing, or a byte now and then: enough of those would use up
// the switch's descriptors. Here every connection must make a request that is admitted soon after it came, and again
// from time to time.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "weft/aggregation/address.h"
#include "weft/control/counters.h"
#include "weft/control/listener.h"
#include "weft/control/socket.h"

namespace weft::control {

struct DoorLimits {
  std::size_t connections = 1024;
  std::size_t connections_per_host = 256;
  std::chrono::milliseconds first_request{5'000};  // that is admitted
  std::chrono::milliseconds idle{60'000};
};

struct Visitor {
  aggregation::Address remote;
  aggregation::Address local;
};

class FrontDoor {
 public:
  // Takes over the descriptor.
  using Welcome = std::function<void(int fd)>;

  FrontDoor(const aggregation::Address& listen, const DoorLimits& limits, Counters& counters);
  ~FrontDoor();
  FrontDoor(const FrontDoor&) = delete;
  FrontDoor& operator=(const FrontDoor&) = delete;

  void open(Welcome welcome);
  void close();
  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }
  [[nodiscard]] std::size_t connections() const;

  // A request came over the connection that gRPC calls "fd:12": who sent it. While the result is held, the connection
  // may be silent. Nothing for one that has been shown out.
  [[nodiscard]] std::shared_ptr<const Visitor> request_from(const std::string& peer);
  // That request was one that may be made: the connection may stay. Requests that are refused do not prolong it.
  void admit(const std::string& peer);

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    files::FileDescriptor copy;  // of gRPC's: to watch and to shut it
    std::shared_ptr<const Visitor> visitor;
    bool admitted = false;
    Clock::time_point last;
  };

  void run();
  void wait_for_something();
  void let_in();
  [[nodiscard]] bool is_full(std::uint32_t host) const;
  void show_out_the_silent();
  void forget_gone(int fd);

  DoorLimits limits_;
  Counters& counters_;
  Listener listener_;
  Bell bell_;
  Welcome welcome_;
  mutable std::mutex mutex_;
  std::map<int, Connection> connections_;  // by gRPC's descriptor
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace weft::control
