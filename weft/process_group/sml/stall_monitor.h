// Monitors the running sum: warns on stderr if it stalls, and aborts it if another rank has aborted.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "weft/process_group/sml/abort_flag.h"

namespace weft::process_group {

// The running sum.
struct SumInProgress {
  std::string title;  // "all_reduce number 3"
  std::int64_t elements = 0;
  std::function<std::int64_t()> done;  // number of elements whose sum has arrived; thread-safe
};

struct StallMonitorOptions {
  int rank = 0;
  std::string switch_name;               // the switch's address, for messages
  std::chrono::milliseconds warn_after;  // time without progress before a warning
};

class StallMonitor {
 public:
  // Calls `give_up` from its own thread, with another rank's reason.
  StallMonitor(StallMonitorOptions options, AbortFlag& notice, std::function<void(const std::string&)> give_up);
  ~StallMonitor();
  StallMonitor(const StallMonitor&) = delete;
  StallMonitor& operator=(const StallMonitor&) = delete;

  void begin(SumInProgress sum);
  // Stops monitoring. After end() returns, the monitor no longer accesses the sum.
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  // Time since the last progress of the sum.
  [[nodiscard]] Clock::duration stalled();
  void warn(Clock::duration stalled);

  StallMonitorOptions options_;
  AbortFlag& abort_flag_;
  std::function<void(const std::string&)> give_up_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;
  bool idle_ = false;  // the thread waits for a sum
  bool closing_ = false;
  bool warned_ = false;
  SumInProgress sum_;
  std::uint64_t number_ = 0;  // number of sums so far
  std::int64_t seen_ = 0;     // elements done at the last check
  Clock::time_point last_progress_;
  std::thread thread_;
};

}  // namespace weft::process_group
