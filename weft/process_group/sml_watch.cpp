#include "weft/process_group/sml_watch.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace weft::process_group {
namespace {

// Between two looks; a sum that lasts less is never looked at, and one that gets on asks the store nothing.
constexpr auto kLookEvery = std::chrono::milliseconds(500);

}  // namespace

SumWatch::SumWatch(WatchOptions options, Notice& notice, std::function<void(const std::string&)> give_up)
    : options_(std::move(options)), notice_(notice), give_up_(std::move(give_up)), thread_([this] { run(); }) {}

SumWatch::~SumWatch() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void SumWatch::begin(SumInProgress sum) {
  {
    const std::lock_guard lock(mutex_);
    sum_ = std::move(sum);
    ++number_;
    running_ = true;
    warned_ = false;
    seen_ = 0;
    last_progress_ = Clock::now();
  }
  changed_.notify_one();
}

void SumWatch::end() {
  const std::lock_guard lock(mutex_);
  running_ = false;
  sum_ = {};
}

void SumWatch::run() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    changed_.wait(lock, [this] { return closing_ || running_; });
    const std::uint64_t number = number_;
    // Sums follow each other quickly: one notice each would cost more than they do.
    if (changed_.wait_for(lock, kLookEvery, [this] { return closing_; })) return;
    if (!running_ || number != number_) continue;
    const auto waited = stalled();
    if (waited < kLookEvery / 2) continue;
    if (!warned_ && waited >= options_.warn_after) warn(waited);
    lock.unlock();  // the store may take its time, and the lane must not wait for it
    const std::string heard = notice_.heard();
    if (!heard.empty()) give_up_(heard);
    lock.lock();
  }
}

SumWatch::Clock::duration SumWatch::stalled() {
  const std::int64_t done = sum_.done();
  const auto now = Clock::now();
  if (done != std::exchange(seen_, done)) last_progress_ = now;
  return now - last_progress_;
}

void SumWatch::warn(Clock::duration stalled) {
  warned_ = true;
  std::fprintf(
      stderr,
      "weft: rank %d has waited %lld s in %s through the switch at %s: %lld of %lld elements are here; another "
      "rank did not call it yet, or the switch cannot be reached\n",
      options_.rank, static_cast<long long>(std::chrono::duration_cast<std::chrono::seconds>(stalled).count()),
      sum_.title.c_str(), options_.switch_name.c_str(), static_cast<long long>(std::min(seen_, sum_.elements)),
      static_cast<long long>(sum_.elements));
  std::fflush(stderr);
}

}  // namespace weft::process_group
