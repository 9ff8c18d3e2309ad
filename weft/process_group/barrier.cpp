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

constexpr char kAllCame = 1;
constexpr char kSomeAreMissing = 0;

// What is sent and received; those who give up leave it to MPI.
struct Words {
  char hello = 0;
  char here = 0;
  char verdict = 0;
};

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

// On rank 0.
void await_all(mpi::CommunicatorView comm, int tag, std::chrono::milliseconds timeout, bool wait_all_ranks) {
  const auto deadline = Clock::now() + timeout;
  const auto words = std::make_shared<Words>();
  const auto tell_all = [&](const char& word) {
    std::vector<mpi::Outgoing> outgoing;
    for (int rank = 1; rank < comm.size(); ++rank) outgoing.push_back({rank, &word, 1});
    // Those who are not here read it when they come.
    static_cast<void>(mpi::exchange(outgoing, {}, tag, comm, words)->advance());
  };
  tell_all(words->here);
  std::vector<int> missing;
  for (int rank = 1; rank < comm.size() && (missing.empty() || wait_all_ranks); ++rank) {
    const auto hello = mpi::exchange({}, {{rank, &words->hello, 1}}, tag, comm, words);
    if (!done_by(*hello, deadline)) missing.push_back(rank);
  }
  words->verdict = missing.empty() ? kAllCame : kSomeAreMissing;
  tell_all(words->verdict);
  TORCH_CHECK(missing.empty() || timeout.count() > 0, "weft: Rank 0 timed out in monitoredBarrier after 0 ms");
  TORCH_CHECK(missing.empty(), "weft: [Rank 0]: Rank", missing.size() > 1 ? "s " : " ", joined(missing),
              " failed to pass monitoredBarrier in ", timeout.count(), " ms");
}

// On the others.
void await_verdict(mpi::CommunicatorView comm, int tag, std::chrono::milliseconds timeout) {
  constexpr std::chrono::seconds kGrace{5};  // for a rank 0 that is alive and has no core
  const auto words = std::make_shared<Words>();
  const auto require = [&](bool fulfilled, const std::string& otherwise) {
    TORCH_CHECK(fulfilled, "weft: Rank ", comm.rank(),
                " successfully reached monitoredBarrier, but received errors while ",
                "waiting for send/recv from rank 0: ", otherwise);
  };
  const auto greeting = mpi::exchange({{0, &words->hello, 1}}, {{0, &words->here, 1}}, tag, comm, words);
  require(done_by(*greeting, Clock::now() + timeout), "it did not come in " + std::to_string(timeout.count()) + " ms");
  const auto verdict = mpi::exchange({}, {{0, &words->verdict, 1}}, tag, comm, words);
  require(done_by(*verdict, Clock::now() + timeout + kGrace), "it came, but never said whether the others did");
  require(words->verdict == kAllCame, "not all ranks came in time. Please check rank 0 logs for faulty rank.");
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

// Rank 0 says that it is here, hears from the others and tells them whether all came. So nobody waits longer than the
// timeout for rank 0, nor much longer than rank 0 itself for its verdict, whoever came first.
void Group::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const auto timeout = manner(c10d::OpType::BARRIER, "weft:monitored_barrier", opts).timeout;
  int tag = 0;
  {
    const std::lock_guard order(channels_->order());
    channels_->require_usable();
    tag = next_tag();
    ++sequence_;
  }
  if (rank_ == 0) {
    await_all(comm(), tag, timeout, wait_all_ranks);
  } else {
    await_verdict(comm(), tag, timeout);
  }
}

}  // namespace weft::process_group
