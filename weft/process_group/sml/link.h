// A rank's connection to the switch: joins a session, keeps it and leaves it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "weft/aggregation/config/config.h"
#include "weft/aggregation/config/control_client.h"
#include "weft/aggregation/transport/shared_memory.h"
#include "weft/aggregation/worker/worker_session.h"

namespace weft::process_group {

struct LinkOptions {
  std::uint64_t session = 0;  // identical on all ranks and unique to the group
  int rank = 0;
  int workers = 1;
  std::chrono::milliseconds timeout{300'000};  // time without progress after which an operation fails
};

// Whether the backend is dummy, which needs no switch and does not sum over the ranks.
[[nodiscard]] bool is_dummy(const aggregation::Config& config);

struct PacketPlan {
  int elements = 0;  // per packet
  int window = 0;    // packets in flight per worker
};
// Packets that suit the route to the switch: of 1500 bytes, up to 64 KiB on the loopback interface, or 256 elements in
// classic mode. The window is at most max_outstanding_packets.
[[nodiscard]] PacketPlan packets_for_route(const aggregation::Config& config, int workers);

// Exclusive use of DPDK, whose port and memory exist once per process.
class DpdkUse {
 public:
  // Throws ConfigError if another Link uses DPDK; does nothing if `wanted` is false.
  explicit DpdkUse(bool wanted);
  ~DpdkUse();
  DpdkUse(const DpdkUse&) = delete;
  DpdkUse& operator=(const DpdkUse&) = delete;

 private:
  bool has_;
};

class Link {
 public:
  // Joins the session. Throws ConfigError, JoinRefused or SwitchUnreachable. Operations may start when all ranks have
  // joined.
  Link(const aggregation::Config& config, const LinkOptions& options);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  [[nodiscard]] aggregation::WorkerSession& session() { return *session_; }
  // Leaves the session without waiting long for the switch. The session must not be used afterwards. The destructor
  // calls it.
  void leave() noexcept;
  // Cancels the session's operations, also while it waits for an unreachable switch. Thread-safe.
  void cancel(const std::string& reason);

 private:
  // Joins with this UDP port.
  [[nodiscard]] aggregation::JoinResponse join(std::uint16_t port);
  // Rejoins the session. Waits for the switch if it is restarting.
  [[nodiscard]] std::optional<aggregation::Admission> rejoin();

  aggregation::Config config_;
  DpdkUse dpdk_;  // released after the transport
  LinkOptions options_;
  aggregation::JoinRequest request_;
  std::shared_ptr<const aggregation::SharedMemory> memory_;  // null: none
  std::atomic<bool> cancelled_{false};
  bool left_ = false;
  std::unique_ptr<aggregation::ControlClient> client_;  // null with backend = dummy
  std::unique_ptr<aggregation::WorkerSession> session_;
};

}  // namespace weft::process_group
