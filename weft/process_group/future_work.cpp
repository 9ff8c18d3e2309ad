#include "weft/process_group/future_work.h"

#include <c10/util/Exception.h>

namespace weft::process_group {

std::exception_ptr as_dist_error(const std::string& text) {
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text));
}

FutureWork::FutureWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs)
    : c10d::Work(rank, type, title, inputs),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

float FutureWork::getDuration() const {
  const auto end = ended_ == Clock::time_point{} ? Clock::now() : ended_;
  return std::chrono::duration<float, std::milli>(end - started_).count();
}

void FutureWork::finish_with(const std::vector<at::Tensor>& outputs, const std::exception_ptr& error) noexcept {
  ended_ = Clock::now();
  // Ends the profiler's record before the Future completes: a thread that waits for the Future may stop the profiler,
  // which needs complete records.
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
  // Completes the Future before the Work, because a complete Work implies a complete Future.
  try {
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(c10::IValue(outputs));
    }
  } catch (const std::exception& callback) {
    TORCH_WARN("weft: a callback of ", describe(), " failed: ", callback.what());
  }
  finish(error);
}

}  // namespace weft::process_group
