#include "weft/process_group/sml/aggregation_queue.h"

#include <c10/core/GradMode.h>

#include <utility>

#include "weft/numeric/floating_point.h"
#include "weft/process_group/future_work.h"

namespace weft::process_group {
namespace {

// Maximum time at shutdown for serving peers that missed the last sum because the switch restarted.
constexpr auto kLingerTime = std::chrono::seconds(2);
// Maximum time at shutdown without progress of the remaining tasks.
constexpr auto kClosingPatience = std::chrono::seconds(5);
constexpr auto kProgressInterval = std::chrono::milliseconds(100);

std::exception_ptr refusal(const std::string& reason) {
  return as_dist_error("sml: the group is no longer usable: " + reason + "; destroy it and create a new one");
}

}  // namespace

AggregationQueue::AggregationQueue(std::unique_ptr<Link> link, AbortFlag notice, const StallMonitorOptions& monitor)
    : link_(std::move(link)),
      abort_flag_(std::move(notice)),
      monitor_(monitor, abort_flag_, [this](const std::string& reason) { stop(reason); }),
      thread_([this] { run(); }) {}

AggregationQueue::~AggregationQueue() {
  stop("it was destroyed");  // not reported to other ranks, which may destroy theirs later
  close();
}

void AggregationQueue::add(Task task) {
  const std::lock_guard lock(mutex_);
  if (!reason_.empty()) std::rethrow_exception(refusal(reason_));
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void AggregationQueue::give_up(const std::string& reason) {
  if (stop(reason)) abort_flag_.set(reason);
}

bool AggregationQueue::stop(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return false;
    reason_ = reason;
  }
  link_->cancel(reason);
  changed_.notify_all();
  return true;
}

void AggregationQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (!thread_.joinable()) return;
  wait_for_tasks();
  thread_.join();
  link_->leave();  // releases the slots now, not with the last reference
}

void AggregationQueue::wait_for_tasks() {
  std::unique_lock lock(mutex_);
  std::pair<std::int64_t, std::int64_t> seen{-1, -1};  // finished tasks; elements of the running one
  auto last_progress = std::chrono::steady_clock::now();
  while (!changed_.wait_for(lock, kProgressInterval, [this] { return idle_; })) {
    const auto now = std::chrono::steady_clock::now();
    const std::pair done{finished_, link_->session().progress()};
    if (done != std::exchange(seen, done)) last_progress = now;
    if (now - last_progress < kClosingPatience) continue;
    lock.unlock();
    give_up("the group was destroyed before all of its sums were complete");
    return;
  }
}

bool AggregationQueue::usable() const {
  const std::lock_guard lock(mutex_);
  return reason_.empty();
}

void AggregationQueue::run() {
  const c10::AutoGradMode no_grad(false);
  const numeric::DefaultFloatingPoint same_on_all_ranks;
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
      if (tasks_.empty()) {
        idle_ = true;
        break;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    execute(task);
    const std::lock_guard lock(mutex_);
    ++finished_;
  }
  changed_.notify_all();
  if (!usable()) return;
  try {
    link_->session().linger(kLingerTime);
  } catch (const std::exception&) {  // no peer is left
  }
}

void AggregationQueue::execute(Task& task) {
  std::exception_ptr failure;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (!reason_.empty()) std::rethrow_exception(refusal(reason_));
    }
    monitor_.begin(
        {task.title, task.elements, [this, done = task.done] { return *done + link_->session().progress(); }});
    task.run(link_->session());
  } catch (const std::exception& error) {
    failure = std::current_exception();
    give_up(error.what());
  }
  monitor_.end();
  task.conclude(failure);
}

}  // namespace weft::process_group
