// A software switch as one object: data plane, control plane and status page, from their options to their end.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "weft/aggregation/jobs.h"
#include "weft/control/keys.h"

namespace weft::control::rpc {

struct DaemonOptions {
  aggregation::Address listen{0, 48864};        // UDP packets
  aggregation::Address control{0, 50099};       // gRPC
  aggregation::Address http{0x7F000001, 9099};  // metrics and status
  bool with_http = true;
  JobKeys keys;
  bool open = false;               // without keys: admit other machines too
  bool multihomed = false;         // without keys: workers' packets may come from elsewhere than their set-up
  std::chrono::seconds idle{600};  // a job without packets for so long gives its slots back
  aggregation::SwitchLimits limits;
};

// How many descriptors such a switch has open when all who may be connected are.
[[nodiscard]] std::uint64_t descriptors_of(const DaemonOptions& options);

class Daemon {
 public:
  // Serves when it is there. Throws std::system_error naming the address that could not be had.
  explicit Daemon(DaemonOptions options);
  // Tells those who wait, then ends.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  [[nodiscard]] aggregation::Address data_address() const;
  [[nodiscard]] aggregation::Address control_address() const;
  [[nodiscard]] aggregation::Address http_address() const;  // port 0: there is none
  // To be called from time to time: gives back what idle jobs hold.
  void look_after();
  // One line: what was done so far.
  [[nodiscard]] std::string summary() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace weft::control::rpc
