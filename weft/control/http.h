// A small read-only HTTP server: a few pages, bounded requests, slow clients dropped. One thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>

#include "weft/aggregation/address.h"
#include "weft/control/counters.h"
#include "weft/control/http_request.h"
#include "weft/control/listener.h"
#include "weft/control/socket.h"

namespace weft::control {

struct HttpLimits {
  std::size_t connections = 64;
  std::size_t request_bytes = 8 << 10;
  std::chrono::milliseconds patience{5'000};  // from the connection to its last byte
};

class HttpServer {
 public:
  // Serves when it is there.
  HttpServer(const aggregation::Address& listen, Pages pages, Counters& counters, const HttpLimits& limits = {});
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
    std::string response;  // empty while the request is being read
    std::size_t sent = 0;
  };

  void run();
  void accept_some();
  // Whether the exchange goes on.
  [[nodiscard]] bool carry_on(Exchange& exchange);
  [[nodiscard]] bool read_some(Exchange& exchange);
  [[nodiscard]] bool write_some(Exchange& exchange);

  Pages pages_;
  Counters& counters_;
  HttpLimits limits_;
  Listener listener_;
  Bell bell_;
  std::atomic<bool> stopping_{false};
  std::map<int, Exchange> exchanges_;
  std::thread thread_;
};

}  // namespace weft::control
