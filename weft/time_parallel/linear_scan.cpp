#include "weft/time_parallel/linear_scan.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "weft/time_parallel/kernels/kernels.h"
#include "weft/time_parallel/sequence_tensor.h"

namespace weft::time_parallel {

using at::Tensor;

namespace {

constexpr const char* kName = "linear_scan";

void check(const Tensor& jacobian, const Tensor& right_hand) {
  TORCH_CHECK_VALUE(jacobian.dim() == 5 && jacobian.size(2) == jacobian.size(3), "weft: ", kName,
                    " expects jacobian [steps, batch, blocks, blocks, lanes], got ", jacobian.sizes());
  check_argument(kName, "right_hand", right_hand,
                 {jacobian.size(0), jacobian.size(1), jacobian.size(2) * jacobian.size(4)}, jacobian);
  TORCH_CHECK_VALUE(jacobian.is_contiguous() && right_hand.is_contiguous(), "weft: ", kName,
                    " expects contiguous tensors");
}

template <class T>
LinearScan<T> call_of(const Tensor& jacobian, const Tensor& right_hand, bool adjoint, const Tensor& end) {
  LinearScan<T> call;
  call.steps = jacobian.size(0);
  call.batch = jacobian.size(1);
  call.blocks = jacobian.size(2);
  call.lanes = jacobian.size(4);
  call.adjoint = adjoint;
  call.jacobian = jacobian.const_data_ptr<T>();
  call.right_hand = pointer<T>(right_hand);
  if (end.defined()) call.end = end.mutable_data_ptr<T>();
  return call;
}

template <class T>
void run(const LinearScan<T>& call) {
  at::parallel_for(0, call.batch, 1, [&](std::int64_t first, std::int64_t end) {
    LinearScan<T> part = call;
    part.first_row = first;
    part.end_row = end;
    kernels<T>().linear_scan(part);
  });
}

}  // namespace

Tensor linear_scan_(const Tensor& jacobian, const Tensor& right_hand, const std::optional<Tensor>& start,
                    bool adjoint) {
  check(jacobian, right_hand);
  const Tensor end = at::empty({jacobian.size(1), right_hand.size(2)}, jacobian.options());
  Tensor from;
  if (start) {
    check_argument(kName, "start", *start, end.sizes(), jacobian);
    from = start->contiguous();
  }
  AT_DISPATCH_FLOATING_TYPES(jacobian.scalar_type(), kName, [&] {
    auto call = call_of<scalar_t>(jacobian, right_hand, adjoint, end);
    call.start = pointer<scalar_t>(from);
    call.solution = right_hand.mutable_data_ptr<scalar_t>();
    run(call);
  });
  return end;
}

std::tuple<Tensor, Tensor> linear_scan_summary(const Tensor& jacobian, const Tensor& right_hand, bool adjoint) {
  check(jacobian, right_hand);
  const Tensor end = at::empty({jacobian.size(1), right_hand.size(2)}, jacobian.options());
  const Tensor product = at::empty(jacobian.sizes().slice(1), jacobian.options());
  AT_DISPATCH_FLOATING_TYPES(jacobian.scalar_type(), kName, [&] {
    auto call = call_of<scalar_t>(jacobian, right_hand, adjoint, end);
    call.product = product.mutable_data_ptr<scalar_t>();
    run(call);
  });
  return {product, end};
}

void add_linear_response_(const Tensor& jacobian, const Tensor& solution, const Tensor& start) {
  check(jacobian, solution);
  check_argument(kName, "start", start, {jacobian.size(1), solution.size(2)}, jacobian);
  const Tensor from = start.contiguous();
  AT_DISPATCH_FLOATING_TYPES(jacobian.scalar_type(), kName, [&] {
    auto call = call_of<scalar_t>(jacobian, Tensor(), /*adjoint=*/false, Tensor());
    call.start = pointer<scalar_t>(from);
    call.solution = solution.mutable_data_ptr<scalar_t>();
    call.add = true;
    run(call);
  });
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("add_linear_response_(Tensor jacobian, Tensor(a!) solution, Tensor start) -> ()");
  m.def("linear_scan_(Tensor jacobian, Tensor(a!) right_hand, Tensor? start, bool adjoint) -> Tensor");
  m.def("linear_scan_summary(Tensor jacobian, Tensor right_hand, bool adjoint) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(weft, CPU, m) {
  m.impl("linear_scan_", [](const Tensor& jacobian, Tensor& right_hand, const std::optional<Tensor>& start,
                            bool adjoint) { return linear_scan_(jacobian, right_hand, start, adjoint); });
  m.impl("linear_scan_summary", &linear_scan_summary);
  m.impl("add_linear_response_", [](const Tensor& jacobian, Tensor& solution, const Tensor& start) {
    add_linear_response_(jacobian, solution, start);
  });
}

}  // namespace weft::time_parallel
