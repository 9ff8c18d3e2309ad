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

Lane::Lane(std::unique_ptr<Link> link) : link_(std::move(link)), thread_([this] { run(); }) {}

Lane::~Lane() {
  give_up("it was destroyed");
  close();
}

void Lane::add(Task task) {
  const std::lock_guard lock(mutex_);
  if (!reason_.empty()) std::rethrow_exception(refusal(reason_));
  tasks_.push_back(std::move(task));
  changed_.notify_one();
}

void Lane::give_up(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return;
    reason_ = reason;
  }
  link_->cancel(reason);
  changed_.notify_one();
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
    task.run(link_->session());
  } catch (const std::exception& error) {
    failure = std::current_exception();
    give_up(error.what());
  }
  task.conclude(failure);
}

}  // namespace weft::process_group
