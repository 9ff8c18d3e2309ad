// Event loop of the switch: passes packets from its ports to the jobs and sends the answers.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weft/aggregation/switch/jobs.h"
#include "weft/aggregation/transport/outbox.h"
#include "weft/aggregation/transport/spin_wait.h"
#include "weft/aggregation/transport/transport.h"
#include "weft/files/file_descriptor.h"

namespace weft::aggregation {

class SwitchLoop {
 public:
  // One transport for each of SwitchLimits::ports, in order; `jobs` must outlive the loop. The loop takes one batch
  // from each port in turn, so that a flooded port cannot starve the others. All ports but the first accept only
  // packets from their jobs' workers.
  SwitchLoop(Jobs& jobs, std::vector<std::unique_ptr<Transport>> transports);
  SwitchLoop(Jobs& jobs, std::unique_ptr<Transport> transport);
  ~SwitchLoop();
  SwitchLoop(const SwitchLoop&) = delete;
  SwitchLoop& operator=(const SwitchLoop&) = delete;

  // Address of the first port.
  [[nodiscard]] Address address() const { return transports_.front()->local(); }
  // Runs until stop() is called.
  void run();
  // Makes run() return soon. If run() is called later, it returns immediately. Thread-safe.
  void stop();

 private:
  // Waits for packets or wake(). Returns false on timeout; -1: no timeout.
  bool any_ready(int milliseconds);
  // Waits until packets arrive, jobs change or stop() is called.
  void sleep();
  void wake();
  // Handles a batch of each port that has packets; serve() handles one port. Both return whether there were any.
  bool serve_all();
  bool serve(Transport& transport);
  void send(Transport& transport);
  void follow_changes();

  Jobs& jobs_;
  std::vector<std::unique_ptr<Transport>> transports_;
  files::FileDescriptor wakes_;  // an eventfd
  std::vector<pollfd> waiting_;  // each transport, then wakes_
  SpinWait spin_wait_;
  Outbox out_;
  std::optional<std::uint64_t> changes_;  // value of Jobs::changes() that the filters reflect
  std::atomic<bool> stopping_ = false;
};

}  // namespace weft::aggregation
