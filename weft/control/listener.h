// Listening TCP socket that pauses when file descriptors run out, so that poll() loops do not spin.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "weft/aggregation/packet/address.h"
#include "weft/control/event_counters.h"
#include "weft/control/socket.h"

namespace weft::control {

// Not thread-safe.
class Listener {
 public:
  static constexpr std::chrono::milliseconds kPause{100};

  // Throws like listen_on().
  Listener(const aggregation::Address& address, EventCounters& counters);

  // Returns the descriptor for poll(), or -1 (which poll() ignores) while accepting is paused.
  [[nodiscard]] int watched() const;
  // Accepts the next connection as a non-blocking socket. Returns an empty descriptor (-1) if no connection is pending
  // or no descriptor is free. The latter is counted and starts a pause; pending connections wait.
  [[nodiscard]] files::FileDescriptor accept();
  // Returns a pair of connected, non-blocking sockets for the next connection; empty as above. Call it before accept(),
  // so that an accepted connection always gets its pair.
  [[nodiscard]] std::pair<files::FileDescriptor, files::FileDescriptor> prepare_pair();
  [[nodiscard]] std::uint16_t port() const { return local_address(socket_.get()).port; }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] bool pauses() const;
  [[nodiscard]] bool connection_pending() const;
  void pause();

  EventCounters& counters_;
  files::FileDescriptor socket_;
  Clock::time_point pause_end_{};
};

}  // namespace weft::control
