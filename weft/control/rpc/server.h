// gRPC server of the control plane.
#pragma once

#include <memory>

#include "weft/aggregation/switch/jobs.h"
#include "weft/control/connection_limiter.h"
#include "weft/control/event_counters.h"
#include "weft/control/keys.h"
#include "weft/control/sessions.h"

namespace weft::control::rpc {

struct ServerOptions {
  aggregation::Address listen{0, 50099};
  std::uint32_t data_address = 0;  // sent to workers; 0: the address at which they reached the control plane
  JobKeys keys;
  bool open = false;  // without keys: admit workers on other machines
  ConnectionLimits connections;
  bool multihomed = false;  // without keys: workers may use another address for packets
};

class Server {
 public:
  // Starts serving. `jobs` and `counters` must outlive the server. Throws std::system_error if the address is not
  // available.
  Server(ServerOptions options, aggregation::Jobs& jobs, EventCounters& counters);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::size_t connections() const;
  // Number of workers that wait in a barrier or broadcast.
  [[nodiscard]] std::size_t waiting() const;
  [[nodiscard]] Sessions& sessions();
  // Replaces the keys for later requests; sessions keep theirs. Thread-safe.
  void set_keys(const JobKeys& keys);
  // Fails waiting calls and shuts down.
  void stop();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace weft::control::rpc
