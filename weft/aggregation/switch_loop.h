// The switch's event loop: packets from a transport into the jobs, what they answer out again.
#pragma once

#include <atomic>
#include <memory>

#include "weft/aggregation/jobs.h"
#include "weft/aggregation/outbox.h"
#include "weft/aggregation/transport.h"

namespace weft::aggregation {

class SwitchLoop {
 public:
  // The jobs outlive the loop.
  SwitchLoop(Jobs& jobs, std::unique_ptr<Transport> transport);

  [[nodiscard]] Address address() const { return transport_->local(); }
  // Until stop(). The thread that runs it does nothing else.
  void run();
  // From any thread; run() returns soon, or at once if it is called later.
  void stop();

 private:
  Jobs& jobs_;
  std::unique_ptr<Transport> transport_;
  std::atomic<bool> stopping_ = false;
};

}  // namespace weft::aggregation
