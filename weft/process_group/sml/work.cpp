#include "weft/process_group/sml/work.h"

#include "weft/process_group/sml/aggregation_queue.h"

namespace weft::process_group {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  } catch (...) {
    return "unknown error";
  }
}

std::string seconds(std::chrono::milliseconds duration) {
  return std::to_string(static_cast<double>(duration.count()) / 1000) + " s";
}

}  // namespace

SmlWork::SmlWork(std::weak_ptr<AggregationQueue> queue, int rank, c10d::OpType type, std::uint64_t sequence,
                 std::chrono::milliseconds timeout, std::vector<at::Tensor> tensors)
    : FutureWork(rank, type, "sml:all_reduce", tensors),
      queue_(std::move(queue)),
      sequence_(sequence),
      timeout_(timeout),
      tensors_(std::move(tensors)) {}

std::string SmlWork::describe() const {
  return "sml: all_reduce number " + std::to_string(sequence_) + " on rank " + std::to_string(rank_);
}

void SmlWork::conclude(std::exception_ptr error) noexcept {
  if (error) error = as_dist_error(describe() + " failed: " + text_of(error));
  finish_with(tensors_, error);
}

bool SmlWork::ended_by(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return cv_.wait_until(lock, deadline, [this] { return completed_; });
}

bool SmlWork::wait(std::chrono::milliseconds timeout) {
  const auto own_deadline = started_ + timeout_;
  const bool shorter = timeout.count() > 0 && Clock::now() + timeout < own_deadline;
  if (!ended_by(shorter ? Clock::now() + timeout : own_deadline)) {
    if (shorter) {
      std::rethrow_exception(as_dist_error(describe() + ": wait() timed out after " + seconds(timeout)));
    }
    // The queue's thread then completes this Work with the error.
    if (const auto queue = queue_.lock()) {
      queue->give_up(describe() + " timed out after " + seconds(timeout_) +
                     ": another rank did not call it, called something else, or is too slow");
    }
    std::unique_lock lock(mutex_);
    cv_.wait(lock, [this] { return completed_; });
  }
  const std::lock_guard lock(mutex_);
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

void SmlWork::abort() {
  if (const auto queue = queue_.lock()) queue->give_up(describe() + " was aborted");
}

}  // namespace weft::process_group
