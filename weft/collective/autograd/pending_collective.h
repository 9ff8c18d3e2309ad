// The pending operation of a non-blocking collective, with an adjoint that overlaps in the backward pass.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <functional>
#include <memory>

#include "weft/collective/autograd/pending_operation.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/request.h"

namespace weft::collective {

// The adjoint of a non-blocking collective. Ranks may wait in different orders, so adjoints follow the order of the
// starts: backward runs them in reverse at the positions of the starts.
struct AsyncAdjoint {
  // Runs the adjoint.
  std::function<at::Tensor(const at::Tensor& gradient)> run;
  // Starts it without blocking; null if it has no non-blocking form. Backward calls it as soon as the gradient is known
  // and all operations that were started later have started their adjoints.
  std::function<c10::intrusive_ptr<PendingOperation>(const at::Tensor& gradient)> start;
};

// An adjoint that is a non-blocking operation: `start` starts it and returns the pending operation.
[[nodiscard]] AsyncAdjoint overlapping_adjoint(
    std::function<c10::intrusive_ptr<PendingOperation>(const at::Tensor& gradient)> start);
// An adjoint without a non-blocking form.
[[nodiscard]] AsyncAdjoint blocking_adjoint(std::function<at::Tensor(const at::Tensor& gradient)> run);

class PendingCollective final : public PendingOperation {
 public:
  PendingCollective(const char* name, CommunicatorPtr communicator) : PendingOperation(name, std::move(communicator)) {}
  bool ready() override { return request.test(); }

  // Records the start of the operation on x. `result_sizes`: the shape of the result.
  void record_start(const at::Tensor& x, at::IntArrayRef result_sizes, AsyncAdjoint adjoint);

  mpi::Request request;
  std::function<at::Tensor()> result;  // converts the received data to the result

 protected:
  at::Tensor finish() override;

 private:
  struct BackwardState;
  std::shared_ptr<BackwardState> backward_;  // null if no gradient is needed
  torch::autograd::Edge start_;  // edge to the node of the start, which backward must reach even without a tape
};

}  // namespace weft::collective
