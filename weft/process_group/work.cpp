#include "weft/process_group/work.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "weft/mpi/error.h"
#include "weft/mpi/team.h"
#include "weft/mpi/waiter.h"

namespace weft::process_group {
namespace {

const char* name_of(const Call& call) { return call.title + sizeof("weft:") - 1; }

}  // namespace

Work::Work(std::shared_ptr<Channels> channels, const Call& call, Job job)
    : FutureWork(channels->rank(), call.type, call.title, job.inputs),
      channels_(std::move(channels)),
      call_(call),
      job_(std::move(job)) {}

std::string Work::describe() const {
  return std::string(name_of(call_)) + " number " + std::to_string(call_.sequence) + " of process group '" +
         channels_->name() + "' on rank " + std::to_string(channels_->rank());
}

bool Work::carry_on() noexcept {
  std::unique_lock lock(carrying_, std::try_to_lock);
  if (!lock.owns_lock() || concluding_) return isCompleted();  // somebody else is at it
  std::exception_ptr failure;
  try {
    if (!job_.operation->advance()) {
      check_patience();
      return false;
    }
    const c10::AutoGradMode no_grad(false);
    if (job_.deliver) job_.deliver();
  } catch (const std::length_error& error) {  // a message that does not fit; what follows it is not affected
    failure = as_dist_error("weft: " + describe() + " failed: " + error.what());
  } catch (const std::exception& error) {
    channels_->give_up(describe() + " failed", dynamic_cast<const mpi::PeerLost*>(&error) != nullptr);
    failure = as_dist_error("weft: " + describe() + " failed: " + error.what());
  }
  concluding_ = true;
  lock.unlock();  // those who are told may ask this Work
  conclude(failure);
  return true;
}

// Ends what takes too long, or waits for a rank that is gone.
void Work::check_patience() {
  const auto now = Clock::now();
  constexpr auto kInspectEvery = std::chrono::milliseconds(50);
  if (now - inspected_ >= kInspectEvery) {
    inspected_ = now;
    channels_->peers().require_alive();
  }
  if (now - started_ < call_.timeout) return;
  throw mpi::TimeoutError("it reached its timeout of " +
                          std::to_string(static_cast<double>(call_.timeout.count()) / 1000) +
                          " s: another rank did not call it, called something else, or is too slow");
}

void Work::conclude(std::exception_ptr error) noexcept {
  job_.operation.reset();
  job_.deliver = nullptr;
  job_.inputs.clear();
  job_.memory.clear();
  tell(job_.outputs, error);
}

void Work::fail(const std::string& cause) noexcept {
  {
    const std::lock_guard lock(carrying_);
    if (concluding_) return;
    concluding_ = true;
  }
  conclude(as_dist_error("weft: " + describe() + " was given up: " + cause));
}

void Work::abort() {
  channels_->give_up(describe() + " was aborted");
  fail("aborted");
}

bool Work::isCompleted() {
  const std::lock_guard lock(mutex_);
  return completed_;
}

bool Work::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

bool Work::wait(std::chrono::milliseconds timeout) {
  if (!carry_on()) {
    const mpi::OperationScope scope(name_of(call_), nullptr);
    // The operation's own timeout ends it, a little later than this one.
    const auto patience = timeout.count() > 0 ? timeout : call_.timeout + std::chrono::seconds(5);
    mpi::Waiter waiter({.operation = name_of(call_), .team = mpi::Team::world().get(), .timeout = patience});
    try {
      while (!carry_on()) waiter.idle();
    } catch (const mpi::TimeoutError& error) {
      std::rethrow_exception(
          as_dist_error("weft: waiting for " + describe() + " reached its timeout : " + error.what()));
    } catch (const mpi::PeerLost& error) {
      channels_->give_up(error.what(), /*peer_lost=*/true);
      fail(error.what());
    }
  }
  const std::lock_guard lock(mutex_);
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

int Work::sourceRank() const {
  TORCH_CHECK(job_.source, "weft: only a receive from any rank has a source rank to ask for");
  return job_.source();
}

}  // namespace weft::process_group
