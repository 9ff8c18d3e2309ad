// A worker's side of the control plane, free of gRPC's types: what libweft_control.so offers to who loads it.
//
// torch carries protobuf inside, and its symbols would meet gRPC's protobuf in one process. The client therefore lives
// in a library of its own that is opened with its own scope and shows one function.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "weft/aggregation/job.h"

namespace weft::control {

struct ClientOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 50099;
  std::string job;   // name of the key; empty: none, as SwitchML's own clients
  std::string keys;  // file with the job's key; empty: none
};

// One worker's wish.
struct JoinRequest {
  std::uint64_t session = 0;
  std::uint32_t rank = 0;
  std::uint32_t workers = 0;
  aggregation::Mode mode = aggregation::Mode::kSwitchMl;
  int packet_elements = 256;
  int slots = 0;  // wanted; 0: as many as may be
  // kSwitchMl, of a worker that comes back to a switch that forgot it: packets of earlier operations are not to be
  // taken for new ones (aggregation::JobSpec::first_operation).
  std::optional<std::uint8_t> first_operation{};
  aggregation::Address address;  // of the worker's UDP socket
};

struct Joined {
  aggregation::Admission admission;
  aggregation::Address switch_address;
  aggregation::PacketKey key{};
};

// The switch said no: asking again changes nothing.
class JoinRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The switch did not answer.
class SwitchUnreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Every function blocks for `patience` at most, trying again while the switch cannot be reached. Any thread.
class Client {
 public:
  using Patience = std::chrono::milliseconds;
  Client() = default;
  virtual ~Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  [[nodiscard]] virtual Joined join(const JoinRequest& request, Patience patience) = 0;
  virtual void leave(std::uint64_t session, std::uint32_t rank, Patience patience) = 0;
  virtual void barrier(std::uint32_t workers, Patience patience) = 0;
  [[nodiscard]] virtual std::uint64_t broadcast(std::uint64_t value, std::uint32_t rank, std::uint32_t workers,
                                                std::uint32_t root, Patience patience) = 0;
};

}  // namespace weft::control

// Does not connect yet. Throws KeysError (a std::runtime_error) for a keys file that cannot be used. The caller
// deletes.
extern "C" weft::control::Client* weft_control_client(const weft::control::ClientOptions& options);
