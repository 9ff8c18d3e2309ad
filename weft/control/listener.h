// A listening TCP socket that leaves a loop around poll() in peace when there are no descriptors left to accept with.
#pragma once

#include <chrono>
#include <cstdint>

#include "weft/aggregation/address.h"
#include "weft/control/counters.h"
#include "weft/control/socket.h"

namespace weft::control {

// One thread.
class Listener {
 public:
  static constexpr std::chrono::milliseconds kPause{100};

  // Throws as listen_on does.
  Listener(const aggregation::Address& address, Counters& counters);

  // For poll(): -1, which that passes over, during a pause.
  [[nodiscard]] int watched() const;
  // The next who knocks, non-blocking; empty (-1) if there is nobody, or no descriptor for them. The latter is counted,
  // and begins a pause: whoever knocks waits, and the socket would be readable all the time.
  [[nodiscard]] files::FileDescriptor accept();
  // Some descriptor, for dup3() to put a second one of a visitor into; empty as above. Asked for first: who came in and
  // found none for the second would have to go.
  [[nodiscard]] files::FileDescriptor spare();
  [[nodiscard]] std::uint16_t port() const { return local_address(socket_.get()).port; }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] bool pauses() const;
  [[nodiscard]] bool somebody_waits() const;
  void pause();

  Counters& counters_;
  files::FileDescriptor socket_;
  Clock::time_point pause_end_{};
};

}  // namespace weft::control
