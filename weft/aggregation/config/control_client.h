// Interface of the control plane's client, without gRPC types. libweft_control.so implements it.
//
// torch contains its own protobuf, whose symbols conflict with gRPC's protobuf. The client is therefore a separate
// library that is loaded with its own symbol scope and exports one function.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "weft/aggregation/config/job.h"
#include "weft/aggregation/packet/shared_slots.h"

namespace weft::aggregation {

struct ControlClientOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 50099;
  std::string job;   // name of the key; empty: none, like SwitchML's own clients
  std::string keys;  // file with the job's key; empty: none
};

// Request of one worker to join a session.
struct JoinRequest {
  std::uint64_t session = 0;
  std::uint32_t rank = 0;
  std::uint32_t workers = 0;
  Mode mode = Mode::kSwitchMl;
  int packet_elements = 256;
  int slots = 0;  // requested; 0: as many as possible
  // kSwitchMl: first operation of a worker that joins again after a restart of the switch, so that packets of earlier
  // operations are rejected (JobSpec::first_operation).
  std::optional<std::uint8_t> first_operation{};
  Address address;  // address of the worker's UDP socket
  WorkerSalt salt{};
  SharedMemoryName memory{};  // offered to a switch on the same machine
};

struct JoinResponse {
  Admission admission;
  Address switch_address;
  SessionKey key{};
};

// The switch refused the request; retrying does not help.
class JoinRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The switch did not answer.
class SwitchUnreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// All functions block for at most `timeout`, retry while the switch is unreachable, and throw JoinRefused or
// SwitchUnreachable. Thread-safe.
class ControlClient {
 public:
  using Timeout = std::chrono::milliseconds;
  ControlClient() = default;
  virtual ~ControlClient() = default;
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  [[nodiscard]] virtual JoinResponse join(const JoinRequest& request, Timeout timeout) = 0;
  virtual void leave(std::uint64_t session, std::uint32_t rank, Timeout timeout) = 0;
  virtual void barrier(std::uint32_t workers, Timeout timeout) = 0;
  [[nodiscard]] virtual std::uint64_t broadcast(std::uint64_t value, std::uint32_t rank, std::uint32_t workers,
                                                std::uint32_t root, Timeout timeout) = 0;
};

}  // namespace weft::aggregation

// Creates a client, which connects on its first call. The caller deletes it. Throws KeysError (a std::runtime_error) if
// the keys file is invalid.
extern "C" weft::aggregation::ControlClient* weft_control_client(
    const weft::aggregation::ControlClientOptions& options);
