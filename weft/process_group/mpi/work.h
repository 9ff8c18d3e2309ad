// A pending collective or message: a c10d::Work that any thread can advance.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weft/mpi/operation.h"
#include "weft/process_group/future_work.h"
#include "weft/process_group/mpi/group_communicators.h"

namespace weft::process_group {

// Description of a call for errors, profiles and traces.
struct CallInfo {
  c10d::OpType type;
  const char* title;  // "weft:all_reduce"; a string literal
  std::uint64_t sequence;
  std::chrono::milliseconds timeout;
};

// A call whose arguments are checked and whose memory is allocated, but which has not sent anything yet.
struct Task {
  // Starts the communication. The operation owns all memory that its messages refer to, because messages may outlive
  // the Work and the group.
  std::function<std::unique_ptr<mpi::Operation>()> start;
  std::function<void()> deliver;            // runs after the operation, before the Work completes; may be empty
  std::function<int()> source;              // the sender, for receives; may be empty
  std::vector<at::Tensor> inputs, outputs;  // the caller's tensors, for profiles and the result
};

class MpiWork final : public FutureWork {
 public:
  MpiWork(std::shared_ptr<GroupCommunicators> communicators, const CallInfo& call, Task task);

  // Starts the communication. Called once, in the same order on all ranks. Throws if MPI fails.
  void start();
  // Makes progress. Returns true once the communication has succeeded or failed. Thread-safe.
  bool advance() noexcept;

  bool isCompleted() override;
  bool isSuccess() const override;
  // Advances the communication until it completes. Throws its error. If a timeout is given and expires, throws as well,
  // but the communication continues. Returns at once between startCoalescing() and endCoalescing(): torch waits for
  // synchronous calls there, but they start with the batch, whose Work waits for them.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  std::vector<at::Tensor> result() override { return task_.outputs; }
  int sourceRank() const override;
  std::uint64_t getSequencenumber() const override { return call_.sequence; }

  void fail(const std::string& cause) noexcept;

 private:
  void complete(std::exception_ptr error) noexcept;
  [[nodiscard]] bool in_unfinished_batch();
  void check_timeout();
  [[nodiscard]] std::string describe() const override;

  std::shared_ptr<GroupCommunicators> communicators_;
  CallInfo call_;
  Task task_;
  std::unique_ptr<mpi::Operation> operation_;  // null before start() and after completion
  std::mutex progress_mutex_;                  // held by the thread that advances
  bool completing_ = false;                    // guarded by progress_mutex_: the communication has ended
  Clock::time_point checked_ = started_;
};

}  // namespace weft::process_group
