#include "weft/mpi/progress.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "weft/mpi/environment.h"

namespace weft::mpi {
namespace {

using Clock = std::chrono::steady_clock;

// A caller that waits right after starting advances the task itself; the thread leaves it this much time.
constexpr auto kHeadStart = std::chrono::microseconds(50);

// Pauses between polls: not at all right after a task was finished or added, then longer and longer, because the cores
// belong to the computation.
void rest(Clock::duration quiet) {
  constexpr auto kBusy = std::chrono::microseconds(200);
  constexpr auto kLongest = std::chrono::microseconds(500);
  if (quiet < kBusy) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::min<Clock::duration>(quiet / 16, kLongest));
  }
}

}  // namespace

ProgressThread& ProgressThread::instance() {
  static auto* thread = [] {
    auto* made = new ProgressThread();  // leaked: static destructors may add tasks
    Environment::before_finalize([made] { made->stop(); });
    return made;
  }();
  return *thread;
}

void ProgressThread::add(Task task) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  added_.push_back(std::move(task));
  ++unfinished_;
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "weft.progress");
  }
  changed_.notify_one();
}

void ProgressThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

std::size_t ProgressThread::pending() {
  const std::lock_guard lock(mutex_);
  return unfinished_;
}

// Moves added tasks to the thread's own list. With `wait`, sleeps until there are tasks. Returns false to stop.
bool ProgressThread::take_new(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) changed_.wait(lock, [this] { return stopping_ || !added_.empty(); });
  for (auto& task : added_) tasks_.push_back(std::move(task));
  added_.clear();
  return !stopping_;
}

void ProgressThread::run() {
  Clock::time_point moved{};  // time of the last finished task; unset while idle
  while (take_new(/*wait=*/tasks_.empty())) {
    const std::size_t before = tasks_.size();
    if (moved == Clock::time_point{}) {
      std::this_thread::sleep_for(kHeadStart);
      moved = Clock::now();
    }
    std::erase_if(tasks_, [](Task& task) { return task(); });
    if (const std::size_t finished = before - tasks_.size(); finished > 0) {
      moved = Clock::now();
      const std::lock_guard lock(mutex_);
      unfinished_ -= finished;
    }
    if (tasks_.empty()) {
      moved = {};
    } else {
      rest(Clock::now() - moved);
    }
  }
  tasks_.clear();
}

}  // namespace weft::mpi
