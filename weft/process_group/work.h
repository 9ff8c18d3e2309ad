// One call of a collective or message: a c10d::Work whose communication any thread can carry on.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weft/mpi/operation.h"
#include "weft/process_group/channels.h"

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

class Work final : public c10d::Work {
 public:
  Work(std::shared_ptr<Channels> channels, const Call& call, Job job);

  // Carries the communication on; true once it has ended, well or not. Any thread; never throws.
  bool carry_on() noexcept;

  bool isCompleted() override;
  bool isSuccess() const override;
  // Carries on by itself until done. Throws what went wrong; after `timeout` (if one is given) throws, and the
  // communication goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override {}
  void abort() override;
  std::vector<at::Tensor> result() override { return job_.outputs; }
  int sourceRank() const override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::uint64_t getSequencenumber() const override { return call_.sequence; }
  float getDuration() const override;

  void fail(const std::string& cause) noexcept;

 private:
  void conclude(std::exception_ptr error) noexcept;
  void check_patience();
  [[nodiscard]] std::string describe() const;

  using Clock = std::chrono::steady_clock;
  std::shared_ptr<Channels> channels_;
  Call call_;
  Job job_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::mutex carrying_;      // held by the thread that carries on
  bool concluding_ = false;  // under carrying_: the communication has ended, and those who wait are being told
  Clock::time_point started_ = Clock::now();
  Clock::time_point inspected_ = started_;
  Clock::time_point ended_{};
};

}  // namespace weft::process_group
