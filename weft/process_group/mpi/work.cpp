#include "weft/process_group/mpi/work.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "weft/mpi/communicator.h"
#include "weft/mpi/error.h"
#include "weft/mpi/waiter.h"

namespace weft::process_group {
namespace {

const char* name_of(const CallInfo& call) { return call.title + sizeof("weft:") - 1; }

}  // namespace

MpiWork::MpiWork(std::shared_ptr<GroupCommunicators> communicators, const CallInfo& call, Task task)
    : FutureWork(communicators->rank(), call.type, call.title, task.inputs),
      communicators_(std::move(communicators)),
      call_(call),
      task_(std::move(task)) {}

std::string MpiWork::describe() const {
  return std::string(name_of(call_)) + " number " + std::to_string(call_.sequence) + " of process group '" +
         communicators_->name() + "' on rank " + std::to_string(communicators_->rank());
}

void MpiWork::start() {
  const std::lock_guard lock(progress_mutex_);
  try {
    operation_ = task_.start();
  } catch (const std::exception& error) {
    communicators_->invalidate(describe() + " failed: " + error.what());
    throw;
  }
  task_.start = nullptr;
}

bool MpiWork::advance() noexcept {
  std::unique_lock lock(progress_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || completing_) return isCompleted();  // another thread advances or completes it
  std::exception_ptr failure;
  try {
    if (operation_ == nullptr || !operation_->advance()) {
      check_timeout();
      return false;
    }
    const c10::AutoGradMode no_grad(false);
    if (task_.deliver) task_.deliver();
  } catch (const c10::DistBackendError&) {  // an operation of a batch failed, which has reported it
    failure = std::current_exception();
  } catch (const std::length_error& error) {  // a message of the wrong size; later messages are not affected
    failure = as_dist_error("weft: " + describe() + " failed: " + error.what());
  } catch (const std::exception& error) {
    communicators_->invalidate(describe() + " failed", dynamic_cast<const mpi::PeerLost*>(&error) != nullptr);
    failure = as_dist_error("weft: " + describe() + " failed: " + error.what());
  }
  completing_ = true;
  lock.unlock();  // callbacks may use this Work
  complete(failure);
  return true;
}

// Throws if the operation times out or a rank terminated.
void MpiWork::check_timeout() {
  const auto now = Clock::now();
  constexpr auto kInspectEvery = std::chrono::milliseconds(50);
  if (now - checked_ >= kInspectEvery) {
    checked_ = now;
    communicators_->peers().require_alive();
  }
  if (now - started_ < call_.timeout) return;
  throw mpi::TimeoutError("it reached its timeout of " +
                          std::to_string(static_cast<double>(call_.timeout.count()) / 1000) +
                          " s: another rank did not call it, called another operation, or is too slow");
}

void MpiWork::complete(std::exception_ptr error) noexcept {
  operation_.reset();
  task_.start = nullptr;
  task_.deliver = nullptr;
  task_.inputs.clear();
  finish_with(task_.outputs, error);
}

void MpiWork::fail(const std::string& cause) noexcept {
  {
    const std::lock_guard lock(progress_mutex_);
    if (completing_) return;
    completing_ = true;
  }
  complete(as_dist_error("weft: " + describe() + " was aborted: " + cause));
}

void MpiWork::abort() {
  communicators_->invalidate(describe() + " was aborted");
  fail("aborted");
}

bool MpiWork::isCompleted() {
  const std::lock_guard lock(mutex_);
  return completed_;
}

bool MpiWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

bool MpiWork::in_unfinished_batch() {
  const std::lock_guard lock(progress_mutex_);
  return task_.start != nullptr;
}

bool MpiWork::wait(std::chrono::milliseconds timeout) {
  if (in_unfinished_batch()) return true;
  if (!advance()) {
    const mpi::OperationScope scope(name_of(call_), nullptr);
    // Wait a little longer than the timeout of the operation, which then fails by itself.
    const auto patience = timeout.count() > 0 ? timeout : call_.timeout + std::chrono::seconds(5);
    mpi::Waiter waiter({.operation = name_of(call_), .communicator = Communicator::world().get(), .timeout = patience});
    try {
      while (!advance()) waiter.idle();
    } catch (const mpi::TimeoutError& error) {
      std::rethrow_exception(as_dist_error("weft: timed out waiting for " + describe() + ": " + error.what()));
    } catch (const mpi::PeerLost& error) {
      communicators_->invalidate(error.what(), /*peer_lost=*/true);
      fail(error.what());
    }
  }
  const std::lock_guard lock(mutex_);
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

int MpiWork::sourceRank() const {
  TORCH_CHECK(task_.source, "weft: only receives have a source rank");
  return task_.source();
}

}  // namespace weft::process_group
