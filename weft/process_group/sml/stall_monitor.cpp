#include "weft/process_group/sml/stall_monitor.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace weft::process_group {
namespace {

// Shorter sums are never checked, and sums that make progress do not query the store.
constexpr auto kPollInterval = std::chrono::milliseconds(500);

}  // namespace

StallMonitor::StallMonitor(StallMonitorOptions options, AbortFlag& notice,
                           std::function<void(const std::string&)> give_up)
    : options_(std::move(options)), abort_flag_(notice), give_up_(std::move(give_up)), thread_([this] { run(); }) {}

StallMonitor::~StallMonitor() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void StallMonitor::begin(SumInProgress sum) {
  bool idle = false;
  {
    const std::lock_guard lock(mutex_);
    idle = idle_;
    sum_ = std::move(sum);
    ++number_;
    running_ = true;
    warned_ = false;
    seen_ = 0;
    last_progress_ = Clock::now();
  }
  if (idle) changed_.notify_one();
}

void StallMonitor::end() {
  const std::lock_guard lock(mutex_);
  running_ = false;
  sum_ = {};
}

void StallMonitor::run() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    idle_ = true;
    changed_.wait(lock, [this] { return closing_ || running_; });
    idle_ = false;
    const std::uint64_t number = number_;
    // Polls instead of being notified of each sum: a wakeup would take longer than a short sum.
    if (changed_.wait_for(lock, kPollInterval, [this] { return closing_; })) return;
    if (!running_ || number != number_) continue;
    const auto waited = stalled();
    if (waited < kPollInterval / 2) continue;
    if (!warned_ && waited >= options_.warn_after) warn(waited);
    lock.unlock();  // the store may be slow, and the queue must not wait for it
    const std::string reason = abort_flag_.reason();
    if (!reason.empty()) give_up_(reason);
    lock.lock();
  }
}

StallMonitor::Clock::duration StallMonitor::stalled() {
  const std::int64_t done = sum_.done();
  const auto now = Clock::now();
  if (done != std::exchange(seen_, done)) last_progress_ = now;
  return now - last_progress_;
}

void StallMonitor::warn(Clock::duration stalled) {
  warned_ = true;
  std::fprintf(
      stderr,
      "weft: rank %d has waited %lld s in %s through the switch at %s: %lld of %lld elements have arrived; another "
      "rank has not called it yet, or the switch is unreachable\n",
      options_.rank, static_cast<long long>(std::chrono::duration_cast<std::chrono::seconds>(stalled).count()),
      sum_.title.c_str(), options_.switch_name.c_str(), static_cast<long long>(std::min(seen_, sum_.elements)),
      static_cast<long long>(sum_.elements));
  std::fflush(stderr);
}

}  // namespace weft::process_group
