// One sum through the switch, as torch.distributed sees it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "weft/process_group/future_work.h"

namespace weft::process_group {

class Lane;

class SmlWork final : public FutureWork {
 public:
  SmlWork(std::weak_ptr<Lane> lane, int rank, c10d::OpType type, std::uint64_t sequence,
          std::chrono::milliseconds timeout, std::vector<at::Tensor> tensors);

  // By the lane's thread, once.
  void conclude(std::exception_ptr error) noexcept;

  // Throws what went wrong. When the operation's own timeout is over it ends the group; after a shorter `timeout` it
  // throws and the operation goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  std::vector<at::Tensor> result() override { return tensors_; }
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  // Whether it ended by then.
  [[nodiscard]] bool ended_by(Clock::time_point deadline);
  [[nodiscard]] std::string describe() const override;

  std::weak_ptr<Lane> lane_;
  std::uint64_t sequence_;
  std::chrono::milliseconds timeout_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace weft::process_group
