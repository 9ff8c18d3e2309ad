#include "weft/process_group/sml/aggregation_queue.h"

#include <c10/core/GradMode.h>

#include <utility>

#include "weft/process_group/future_work.h"

namespace weft::process_group {
namespace {

// Maximum time at shutdown for serving peers that missed the last sum because the switch restarted.
constexpr auto kLingerTime = std::chrono::seconds(2);

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
  changed_.notify_one();
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
  changed_.notify_one();
  return true;
}

void AggregationQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  link_->leave();  // releases the slots now, not with the last reference
}

bool AggregationQueue::usable() const {
  const std::lock_guard lock(mutex_);
  return reason_.empty();
}

void AggregationQueue::run() {
  const c10::AutoGradMode no_grad(false);
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
      if (tasks_.empty()) break;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    execute(task);
  }
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
