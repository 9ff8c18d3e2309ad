// c10d::Work of a sum through the switch.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "weft/process_group/future_work.h"

namespace weft::process_group {

class AggregationQueue;

class SmlWork final : public FutureWork {
 public:
  SmlWork(std::weak_ptr<AggregationQueue> queue, int rank, c10d::OpType type, std::uint64_t sequence,
          std::chrono::milliseconds timeout, std::vector<at::Tensor> tensors);

  // Called once by the queue's thread.
  void conclude(std::exception_ptr error) noexcept;

  // Throws the operation's error. If the operation's own timeout expires, the group aborts. If a shorter `timeout`
  // expires, it throws and the operation continues.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  std::vector<at::Tensor> result() override { return tensors_; }
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  // Waits until the deadline; returns whether the operation completed.
  [[nodiscard]] bool ended_by(Clock::time_point deadline);
  [[nodiscard]] std::string describe() const override;

  std::weak_ptr<AggregationQueue> queue_;
  std::uint64_t sequence_;
  std::chrono::milliseconds timeout_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace weft::process_group
