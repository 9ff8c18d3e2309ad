#include "weft/node/call.h"

#include <chrono>

#include "weft/mpi/error.h"
#include "weft/mpi/waiter.h"

namespace weft::node {
namespace {

// Polls for alarms once the wait is long. All ranks have agreed to the operation, so a rank that raises an alarm has
// usually finished it, and the other ranks finish it within milliseconds.
class AlarmPolling {
 public:
  explicit AlarmPolling(mpi::Communicator* communicator) : communicator_(communicator) {}

  void idle() {
    constexpr unsigned kInterval = 64;
    constexpr std::chrono::milliseconds kGracePeriod{500};
    if (communicator_ == nullptr || ++calls_ % kInterval != 0) return;
    const auto now = std::chrono::steady_clock::now();
    if (calls_ == kInterval) start_ = now;
    if (now - start_ >= kGracePeriod) communicator_->poll_alarm();
  }

 private:
  mpi::Communicator* communicator_;
  unsigned calls_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

void complete(mpi::Operation& operation, const Call& call) {
  mpi::Waiter waiter({.operation = call.operation});
  AlarmPolling alarms(call.communicator);
  const auto run = [&] {
    // Most waits end within a microsecond, without reading a clock.
    constexpr int kSpins = 100;
    for (int i = 0; i < kSpins; ++i) {
      if (operation.advance()) return;
    }
    while (!operation.advance()) {
      waiter.idle();
      alarms.idle();
    }
  };
  if (call.communicator == nullptr) return run();
  try {
    mpi::alarm_on_timeout(*call.communicator, run);
  } catch (const mpi::PeerLost& error) {
    call.communicator->raise_alarm(error.what());  // without effect if a peer raised one
    throw;
  }
}

}  // namespace weft::node
