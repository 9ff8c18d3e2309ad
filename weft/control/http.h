// Single-threaded read-only HTTP server for a few pages. It limits request sizes and drops slow clients.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>

#include "weft/aggregation/packet/address.h"
#include "weft/control/event_counters.h"
#include "weft/control/http_request.h"
#include "weft/control/listener.h"
#include "weft/control/socket.h"

namespace weft::control {

struct HttpLimits {
  std::size_t connections = 64;
  std::size_t request_bytes = 8 << 10;
  std::chrono::milliseconds timeout{5'000};  // limit for the whole exchange
};

class HttpServer {
 public:
  // Starts serving. Throws std::system_error if the address is not available.
  HttpServer(const aggregation::Address& listen, Pages pages, EventCounters& counters, const HttpLimits& limits = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Exchange {
    files::FileDescriptor socket;
    Clock::time_point deadline;
    std::string request;
    std::string response;  // empty until the request is complete
    std::size_t sent = 0;
  };

  void run();
  void accept_some();
  // These return whether the exchange continues.
  [[nodiscard]] bool advance(Exchange& exchange);
  [[nodiscard]] bool read_some(Exchange& exchange);
  [[nodiscard]] bool write_some(Exchange& exchange);

  Pages pages_;
  EventCounters& counters_;
  HttpLimits limits_;
  Listener listener_;
  WakeupEvent wakeup_;
  std::atomic<bool> stopping_{false};
  std::map<int, Exchange> exchanges_;
  std::thread thread_;
};

}  // namespace weft::control
