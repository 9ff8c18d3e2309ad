// A complete software switch: data plane, control plane and status page.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "weft/aggregation/switch/jobs.h"
#include "weft/control/keys.h"

namespace weft::control::rpc {

struct DaemonOptions {
  aggregation::Address listen{0x7F000001, 48864};   // UDP packets
  aggregation::Address control{0x7F000001, 50099};  // gRPC
  aggregation::Address http{0x7F000001, 9099};      // metrics and status
  bool with_http = true;
  JobKeys keys;
  bool open = false;               // without keys: admit workers on other machines
  bool multihomed = false;         // without keys: workers may use another address for packets
  std::chrono::seconds idle{600};  // time without packets after which a session ends
  aggregation::SwitchLimits limits;
};

// Number of file descriptors that the switch needs when all connections are in use.
[[nodiscard]] std::uint64_t descriptors_of(const DaemonOptions& options);

class Daemon {
 public:
  // Starts serving. Throws std::system_error with the address that is not available.
  explicit Daemon(DaemonOptions options);
  // Fails waiting calls and shuts down.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  [[nodiscard]] aggregation::Address data_address() const;
  [[nodiscard]] aggregation::Address control_address() const;
  [[nodiscard]] aggregation::Address http_address() const;  // port 0: disabled
  // Replaces the keys for later requests; sessions keep theirs.
  void set_keys(const JobKeys& keys);
  // Ends idle sessions. Call it regularly.
  void reclaim_idle();
  // One line of totals for the log.
  [[nodiscard]] std::string summary() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace weft::control::rpc
