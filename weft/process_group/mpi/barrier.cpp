#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <vector>

#include "weft/mpi/error.h"
#include "weft/mpi/message/exchange.h"
#include "weft/mpi/waiter.h"
#include "weft/process_group/mpi/group.h"

namespace weft::process_group {
namespace {

using Clock = std::chrono::steady_clock;

// Waits until the deadline. Returns true if the operation is complete.
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

constexpr char kAllArrived = 1;
constexpr char kSomeMissing = 0;

// Message buffers. They stay alive after a rank times out, because MPI may still use them.
struct Buffers {
  char hello = 0;
  char here = 0;
  char verdict = 0;
};

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

// Runs on rank 0: waits for all other ranks and sends them the verdict.
void await_all(mpi::CommView comm, int tag, std::chrono::milliseconds timeout, bool wait_all_ranks) {
  const auto deadline = Clock::now() + timeout;
  const auto buffers = std::make_shared<Buffers>();
  const auto send_to_all = [&](const char& value) {
    std::vector<mpi::Outgoing> outgoing;
    for (int rank = 1; rank < comm.size(); ++rank) outgoing.push_back({rank, &value, 1});
    // Late ranks receive the verdict when they arrive.
    static_cast<void>(mpi::exchange(outgoing, {}, tag, comm, buffers)->advance());
  };
  send_to_all(buffers->here);
  std::vector<int> missing;
  for (int rank = 1; rank < comm.size() && (missing.empty() || wait_all_ranks); ++rank) {
    const auto hello = mpi::exchange({}, {{rank, &buffers->hello, 1}}, tag, comm, buffers);
    if (!done_by(*hello, deadline)) missing.push_back(rank);
  }
  buffers->verdict = missing.empty() ? kAllArrived : kSomeMissing;
  send_to_all(buffers->verdict);
  TORCH_CHECK(missing.empty() || timeout.count() > 0, "weft: Rank 0 timed out in monitoredBarrier after 0 ms");
  TORCH_CHECK(missing.empty(), "weft: [Rank 0]: Rank", missing.size() > 1 ? "s " : " ", joined(missing),
              " failed to pass monitoredBarrier in ", timeout.count(), " ms");
}

// Runs on all ranks except rank 0: reports to rank 0 and waits for its verdict.
void await_verdict(mpi::CommView comm, int tag, std::chrono::milliseconds timeout) {
  constexpr std::chrono::seconds kGrace{5};  // additional time if rank 0 is alive but not scheduled
  const auto buffers = std::make_shared<Buffers>();
  const auto require = [&](bool fulfilled, const std::string& otherwise) {
    TORCH_CHECK(fulfilled, "weft: Rank ", comm.rank(),
                " successfully reached monitoredBarrier, but received errors while ",
                "waiting for send/recv from rank 0: ", otherwise);
  };
  const auto greeting = mpi::exchange({{0, &buffers->hello, 1}}, {{0, &buffers->here, 1}}, tag, comm, buffers);
  require(done_by(*greeting, Clock::now() + timeout),
          "it did not arrive in " + std::to_string(timeout.count()) + " ms");
  const auto verdict = mpi::exchange({}, {{0, &buffers->verdict, 1}}, tag, comm, buffers);
  require(done_by(*verdict, Clock::now() + timeout + kGrace), "it arrived but did not report whether the others did");
  require(buffers->verdict == kAllArrived, "not all ranks arrived in time. Please check rank 0 logs for faulty rank.");
}

}  // namespace

MpiGroup::WorkPtr MpiGroup::barrier(const c10d::BarrierOptions& opts) {
  return launch(settings(c10d::OpType::BARRIER, "weft:barrier", opts), [&] {
    Task task;
    task.start = [this] {
      mpi::Request request;
      mpi::check(MPI_Ibarrier(comm().handle(), request.add()), "MPI_Ibarrier", comm().handle());
      return std::make_unique<mpi::RequestOperation>(std::move(request));
    };
    return task;
  });
}

// Rank 0 announces its arrival, waits for the others and sends them the verdict. Each rank therefore waits at most the
// timeout for rank 0, and then little longer than rank 0 itself for the verdict.
void MpiGroup::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const auto timeout = settings(c10d::OpType::BARRIER, "weft:monitored_barrier", opts).timeout;
  int tag = 0;
  {
    const std::lock_guard order(communicators_->order());
    communicators_->require_usable();
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
