#include "weft/process_group/sml_lane.h"

#include <c10/core/GradMode.h>

#include <utility>

#include "weft/process_group/future_work.h"

namespace weft::process_group {
namespace {

// How long peers that missed the last sum when the switch died are waited for, at the end.
constexpr auto kFarewell = std::chrono::seconds(2);

std::exception_ptr refusal(const std::string& reason) {
  return as_dist_error("sml: the group cannot be used any more: " + reason + "; destroy it and make another");
}

}  // namespace

Lane::Lane(std::unique_ptr<Link> link, Notice notice, const WatchOptions& watch)
    : link_(std::move(link)),
      notice_(std::move(notice)),
      watch_(watch, notice_, [this](const std::string& heard) { stop(heard); }),
      thread_([this] { run(); }) {}

Lane::~Lane() {
  stop("it was destroyed");  // which the others may do later
  close();
}

void Lane::add(Task task) {
  const std::lock_guard lock(mutex_);
  if (!reason_.empty()) std::rethrow_exception(refusal(reason_));
  tasks_.push_back(std::move(task));
  changed_.notify_one();
}

void Lane::give_up(const std::string& reason) {
  if (stop(reason)) notice_.tell(reason);
}

bool Lane::stop(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return false;
    reason_ = reason;
  }
  link_->cancel(reason);
  changed_.notify_one();
  return true;
}

void Lane::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  link_->leave();  // not when the last reference goes: others want the slots
}

bool Lane::usable() const {
  const std::lock_guard lock(mutex_);
  return reason_.empty();
}

void Lane::run() {
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
    carry_out(task);
  }
  if (!usable()) return;
  try {
    link_->session().linger(kFarewell);
  } catch (const std::exception&) {  // nobody is left to be told
  }
}

void Lane::carry_out(Task& task) {
  std::exception_ptr failure;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (!reason_.empty()) std::rethrow_exception(refusal(reason_));
    }
    watch_.begin({task.title, task.elements, [this, done = task.done] { return *done + link_->session().progress(); }});
    task.run(link_->session());
  } catch (const std::exception& error) {
    failure = std::current_exception();
    give_up(error.what());
  }
  watch_.end();
  task.conclude(failure);
}

}  // namespace weft::process_group
