// The common base of both backends' Works: a Future, a duration, and the order of completion.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <exception>
#include <string>
#include <vector>

namespace weft::process_group {

// Returns a DistBackendError, the exception that users of torch.distributed catch.
[[nodiscard]] std::exception_ptr as_dist_error(const std::string& text);

class FutureWork : public c10d::Work {
 public:
  void synchronize() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  float getDuration() const override;

 protected:
  using Clock = std::chrono::steady_clock;

  FutureWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs);

  // Completes the Work and its Future with `outputs` or with an error. Called once. Logs a callback that throws.
  void finish_with(const std::vector<at::Tensor>& outputs, const std::exception_ptr& error) noexcept;
  // The description in error messages.
  [[nodiscard]] virtual std::string describe() const = 0;

  const Clock::time_point started_ = Clock::now();

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  Clock::time_point ended_{};
};

}  // namespace weft::process_group
