#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <vector>

#include "weft/mpi/error.h"
#include "weft/mpi/exchange.h"
#include "weft/mpi/waiter.h"
#include "weft/process_group/group.h"

namespace weft::process_group {
namespace {

using Clock = std::chrono::steady_clock;

// Waits until the deadline; whether it is done then.
bool done_by(mpi::Operation& operation, Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  try {
    mpi::complete(operation,
                  {.operation = "monitored_barrier", .timeout = std::max(left, std::chrono::milliseconds(1))});
  } catch (const mpi::TimeoutError&) {
    return operation.advance();
  }
  return true;
}

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

Group::WorkPtr Group::barrier(const c10d::BarrierOptions& opts) {
  return launch(manner(c10d::OpType::BARRIER, "weft:barrier", opts), [&] {
    mpi::Request request;
    mpi::check(MPI_Ibarrier(comm().handle(), request.add()), "MPI_Ibarrier", comm().handle());
    Job job;
    job.operation = std::make_unique<mpi::RequestOperation>(std::move(request));
    return job;
  });
}

// Rank 0 hears from everybody and answers everybody: 1 for "all are here", 0 for "some are not".
void Group::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const auto timeout = manner(c10d::OpType::BARRIER, "weft:monitored_barrier", opts).timeout;
  const auto deadline = Clock::now() + timeout;
  int tag = 0;
  {
    const std::lock_guard order(channels_->order());
    channels_->require_usable();
    tag = next_tag();
    ++sequence_;
  }
  const auto word = std::make_shared<std::vector<char>>(static_cast<std::size_t>(size_), 1);
  const auto at = [&](int rank) { return word->data() + rank; };
  if (rank_ != 0) {
    const auto hello = mpi::exchange({{0, at(0), 1}}, {{0, at(rank_), 1}}, tag, comm(), word);
    // Rank 0 may have come later, and waits as long from then on.
    const bool answered = done_by(*hello, deadline + std::min(timeout, std::chrono::milliseconds(1000)));
    TORCH_CHECK(answered, "weft: Rank ", rank_, " timed out in monitoredBarrier after ", timeout.count(),
                " ms: nothing came from rank 0");
    TORCH_CHECK(*at(rank_) == 1, "weft: Rank ", rank_,
                " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. ",
                "Please check rank 0 logs for faulty rank.");
    return;
  }
  std::vector<int> arrived;
  std::vector<int> missing;
  for (int rank = 1; rank < size_ && (missing.empty() || wait_all_ranks); ++rank) {
    const auto hello = mpi::exchange({}, {{rank, at(rank), 1}}, tag, comm(), word);
    (done_by(*hello, deadline) ? arrived : missing).push_back(rank);
    TORCH_CHECK(timeout.count() > 0 || missing.empty(), "weft: Rank 0 timed out in monitoredBarrier after ",
                timeout.count(), " ms");
  }
  *at(0) = missing.empty() ? 1 : 0;
  // Those behind the first missing rank were not waited for, but may be here.
  if (!missing.empty() && !wait_all_ranks) {
    for (int rank = missing.front() + 1; rank < size_; ++rank) arrived.push_back(rank);
  }
  for (const int rank : arrived) {
    const auto answer = mpi::exchange({{rank, at(0), 1}}, {}, tag, comm(), word);
    static_cast<void>(answer->advance());
  }
  if (missing.empty()) return;
  TORCH_CHECK(false, "weft: [Rank 0]: Rank", missing.size() > 1 ? "s " : " ", joined(missing),
              " failed to pass monitoredBarrier in ", timeout.count(), " ms");
}

}  // namespace weft::process_group
