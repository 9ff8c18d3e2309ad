// One call of a collective or message: a c10d::Work whose communication any thread can carry on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weft/mpi/operation.h"
#include "weft/process_group/channels.h"
#include "weft/process_group/future_work.h"

namespace weft::process_group {

// What a call is, for errors, profiles and traces.
struct Call {
  c10d::OpType type;
  const char* title;  // "weft:all_reduce"; lives for ever
  std::uint64_t sequence;
  std::chrono::milliseconds timeout;
};

// What there is to do.
struct Job {
  std::unique_ptr<mpi::Operation> operation;
  std::function<void()> deliver;            // after the operation, before anybody is told; may be empty
  std::function<int()> source;              // who sent, of a message from anybody; may be empty
  std::vector<at::Tensor> inputs, outputs;  // as the caller gave them: for profiles, and the Work's result
  std::vector<at::Tensor> memory;           // what MPI reads, to live until the end
};

class Work final : public FutureWork {
 public:
  Work(std::shared_ptr<Channels> channels, const Call& call, Job job);

  // Carries the communication on; true once it has ended, well or not. Any thread; never throws.
  bool carry_on() noexcept;

  bool isCompleted() override;
  bool isSuccess() const override;
  // Carries on by itself until done. Throws what went wrong; after `timeout` (if one is given) throws, and the
  // communication goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  std::vector<at::Tensor> result() override { return job_.outputs; }
  int sourceRank() const override;
  std::uint64_t getSequencenumber() const override { return call_.sequence; }

  void fail(const std::string& cause) noexcept;

 private:
  void conclude(std::exception_ptr error) noexcept;
  void check_patience();
  [[nodiscard]] std::string describe() const override;

  std::shared_ptr<Channels> channels_;
  Call call_;
  Job job_;
  std::mutex carrying_;      // held by the thread that carries on
  bool concluding_ = false;  // under carrying_: the communication has ended, and those who wait are being told
  Clock::time_point inspected_ = started_;
};

}  // namespace weft::process_group
