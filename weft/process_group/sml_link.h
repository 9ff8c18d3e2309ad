// One rank's way through the switch: its session there, set up, kept and given back.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "weft/aggregation/config.h"
#include "weft/aggregation/worker_session.h"
#include "weft/control/client.h"

namespace weft::process_group {

struct LinkOptions {
  std::uint64_t session = 0;  // the same on all ranks, and no other group's
  int rank = 0;
  int workers = 1;
  std::chrono::milliseconds timeout{300'000};  // without any progress
};

// backend = dummy: no switch is needed, and nothing is summed over the ranks.
[[nodiscard]] bool sends_nothing(const aggregation::Config& config);

// DPDK's port and memory are one for a process, so one Link at a time may have them.
class DpdkUse {
 public:
  // Throws ConfigError where another has them; `wanted` false: takes nothing.
  explicit DpdkUse(bool wanted);
  ~DpdkUse();
  DpdkUse(const DpdkUse&) = delete;
  DpdkUse& operator=(const DpdkUse&) = delete;

 private:
  bool has_;
};

class Link {
 public:
  // Registers with the switch; throws what the switch or the configuration has against it. Packets may be sent when
  // every rank has registered.
  Link(const aggregation::Config& config, const LinkOptions& options);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  [[nodiscard]] aggregation::WorkerSession& session() { return *session_; }
  // Tells the switch that this rank is done, without waiting long for it; the session is not used any more. The
  // destructor does so if nobody did.
  void leave() noexcept;
  // Ends what the session does, also while it waits for a switch that is away. From any thread.
  void cancel(const std::string& reason);

 private:
  // Packets come from this port of this host.
  [[nodiscard]] control::Joined join(std::uint16_t port);
  // Whether the job still stands; waits for a switch that is being restarted.
  [[nodiscard]] std::optional<aggregation::Admission> rejoin();

  aggregation::Config config_;
  DpdkUse dpdk_;  // given back when the transport has gone
  LinkOptions options_;
  control::JoinRequest request_;
  std::atomic<bool> cancelled_{false};
  bool left_ = false;
  std::unique_ptr<control::Client> client_;  // none with backend = dummy
  std::unique_ptr<aggregation::WorkerSession> session_;
};

}  // namespace weft::process_group
