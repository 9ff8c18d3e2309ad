// The switch's event loop: packets from its ports into the jobs, what they answer out again.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weft/aggregation/jobs.h"
#include "weft/aggregation/lookout.h"
#include "weft/aggregation/outbox.h"
#include "weft/aggregation/transport.h"
#include "weft/files/file_descriptor.h"

namespace weft::aggregation {

class SwitchLoop {
 public:
  // One transport for each of SwitchLimits::ports, in order; the jobs outlive the loop. Of every port a batch is taken
  // in turn, so that a flooded one cannot keep the others waiting; all but the first let only their jobs' workers in.
  SwitchLoop(Jobs& jobs, std::vector<std::unique_ptr<Transport>> transports);
  SwitchLoop(Jobs& jobs, std::unique_ptr<Transport> transport);
  ~SwitchLoop();
  SwitchLoop(const SwitchLoop&) = delete;
  SwitchLoop& operator=(const SwitchLoop&) = delete;

  // Of the first port.
  [[nodiscard]] Address address() const { return transports_.front()->local(); }
  // Until stop(). The thread that runs it does nothing else.
  void run();
  // From any thread; run() returns soon, or at once if it is called later.
  void stop();

 private:
  // Whether packets are here, or wake() was called, within so long; -1: for ever.
  bool any_ready(int milliseconds);
  // Until packets come, jobs change or stop() is called.
  void sleep();
  void wake();
  // A batch of each port that has packets, and of this one; whether there were any.
  bool serve_all();
  bool serve(Transport& transport);
  void send(Transport& transport);
  void follow_changes();

  Jobs& jobs_;
  std::vector<std::unique_ptr<Transport>> transports_;
  files::FileDescriptor wakes_;  // an eventfd
  std::vector<pollfd> waiting_;  // each transport, then wakes_
  Lookout lookout_;
  Outbox out_;
  std::optional<std::uint64_t> changes_;  // of the jobs, that the ports' filters know
  std::atomic<bool> stopping_ = false;
};

}  // namespace weft::aggregation
