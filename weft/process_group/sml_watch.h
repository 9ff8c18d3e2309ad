// Looks after a sum that does not get on: says so on stderr, and hears whether another rank has given up.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "weft/process_group/sml_notice.h"

namespace weft::process_group {

// What is being waited for.
struct SumInProgress {
  std::string title;  // "all_reduce number 3"
  std::int64_t elements = 0;
  std::function<std::int64_t()> done;  // elements whose sum is here; any thread
};

struct WatchOptions {
  int rank = 0;
  std::string switch_name;               // its address
  std::chrono::milliseconds warn_after;  // without any progress
};

class SumWatch {
 public:
  // `give_up` is called from this object's thread, with what another rank said.
  SumWatch(WatchOptions options, Notice& notice, std::function<void(const std::string&)> give_up);
  ~SumWatch();
  SumWatch(const SumWatch&) = delete;
  SumWatch& operator=(const SumWatch&) = delete;

  void begin(SumInProgress sum);
  // When it returns, the sum is not looked at any more.
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  // Whether the sum stands still, and for how long.
  [[nodiscard]] Clock::duration stalled();
  void warn(Clock::duration stalled);

  WatchOptions options_;
  Notice& notice_;
  std::function<void(const std::string&)> give_up_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;
  bool closing_ = false;
  bool warned_ = false;
  SumInProgress sum_;
  std::uint64_t number_ = 0;  // of the sums looked after
  std::int64_t seen_ = 0;     // elements done
  Clock::time_point last_progress_;
  std::thread thread_;
};

}  // namespace weft::process_group
