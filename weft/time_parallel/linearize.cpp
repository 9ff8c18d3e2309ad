#include "weft/time_parallel/linearize.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "weft/time_parallel/kernels/kernels.h"
#include "weft/time_parallel/sequence_tensor.h"

namespace weft::time_parallel {

using at::Tensor;

namespace {

// Rows of a thread's share: enough to pay for packing the weight.
constexpr std::int64_t kMinRows = 256;

struct Shape {
  const char* name;
  std::int64_t states;
  std::int64_t gates;
  std::int64_t factors;  // arrays that determine the full Jacobian
};
constexpr Shape kGru{"gru_linearize", 1, 3, 4};
constexpr Shape kLstm{"lstm_linearize", 2, 4, 6};

// The results of a kernel: either the diagonals or the factors are defined.
struct Result {
  Tensor next, diagonals, factors;
};

template <template <class> class Call, class Kernel>
Result run(const Shape& shape, const Tensor& input, const Tensor& before, const Tensor& weight,
           const std::optional<Tensor>& bias, bool full, const Kernel& kernel) {
  TORCH_CHECK_VALUE(input.dim() == 2 && before.dim() == 2, "weft: ", shape.name,
                    " expects input [rows, gates * hidden] and before [rows, states * hidden], got ", input.sizes(),
                    " and ", before.sizes());
  const std::int64_t rows = input.size(0);
  const std::int64_t hidden = before.size(1) / shape.states;
  check_argument(shape.name, "before", before, {rows, shape.states * hidden}, input);
  check_argument(shape.name, "input", input, {rows, shape.gates * hidden}, input);
  check_argument(shape.name, "weight", weight, {shape.gates * hidden, hidden}, input);
  if (bias && bias->defined()) check_argument(shape.name, "bias", *bias, {shape.gates * hidden}, input);
  const Tensor x = input.contiguous(), s = before.contiguous(), w = weight.contiguous();
  const Tensor b = bias && bias->defined() ? bias->contiguous() : Tensor();
  Result result;
  result.next = at::empty_like(s);
  Tensor& extra = full ? result.factors : result.diagonals;
  extra = full ? at::empty({rows, shape.factors, hidden}, s.options())
               : at::empty({rows, shape.states, shape.states, hidden}, s.options());
  AT_DISPATCH_FLOATING_TYPES(s.scalar_type(), "linearize", [&] {
    Call<scalar_t> call;
    call.hidden = hidden;
    call.input = pointer<scalar_t>(x);
    call.before = pointer<scalar_t>(s);
    call.weight = pointer<scalar_t>(w);
    call.bias = pointer<scalar_t>(b);
    call.next = result.next.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, kMinRows, [&](std::int64_t first, std::int64_t end) {
      auto part = call;
      part.first_row = first;
      part.end_row = end;
      kernel(part, extra.mutable_data_ptr<scalar_t>());
    });
  });
  return result;
}

}  // namespace

std::tuple<Tensor, Tensor> gru_linearize(const Tensor& input, const Tensor& before, const Tensor& weight,
                                         const std::optional<Tensor>& bias, bool full, double implicit_step) {
  const Result result = run<GruLinearize>(kGru, input, before, weight, bias, full, [&]<class T>(auto call, T* extra) {
    (full ? call.factors : call.diagonal) = extra;
    call.implicit_step = static_cast<T>(implicit_step);
    kernels<T>().gru_linearize(call);
  });
  if (!full) return {result.next, result.diagonals};
  const auto f = result.factors.unbind(1);
  const auto w = weight.chunk(3);
  const Tensor jacobian =
      at::diag_embed(f[0]) + f[1].unsqueeze(2) * w[1] + f[2].unsqueeze(2) * w[2] + f[3].unsqueeze(2) * w[0];
  return {result.next, jacobian.unsqueeze(3)};
}

std::tuple<Tensor, Tensor> lstm_linearize(const Tensor& input, const Tensor& before, const Tensor& weight,
                                          const std::optional<Tensor>& bias, bool full) {
  const Result result = run<LstmLinearize>(kLstm, input, before, weight, bias, full, [&]<class T>(auto call, T* extra) {
    (full ? call.factors : call.diagonals) = extra;
    kernels<T>().lstm_linearize(call);
  });
  if (!full) return {result.next, result.diagonals};
  const auto f = result.factors.unbind(1);
  const auto w = weight.chunk(4);
  const Tensor c_by_h = f[0].unsqueeze(2) * w[0] + f[1].unsqueeze(2) * w[1] + f[2].unsqueeze(2) * w[2];
  const Tensor h_by_h = f[3].unsqueeze(2) * w[3] + f[4].unsqueeze(2) * c_by_h;
  const Tensor c_by_c = at::diag_embed(f[5]);
  const Tensor h_by_c = at::diag_embed(f[4] * f[5]);
  const Tensor jacobian = at::cat({at::cat({h_by_h, h_by_c}, 2), at::cat({c_by_h, c_by_c}, 2)}, 1);
  return {result.next, jacobian.unsqueeze(3)};
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def(
      "gru_linearize(Tensor input, Tensor before, Tensor weight, Tensor? bias, bool full, float implicit_step=0) "
      "-> (Tensor, Tensor)");
  m.def("lstm_linearize(Tensor input, Tensor before, Tensor weight, Tensor? bias, bool full) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(weft, CPU, m) {
  m.impl("gru_linearize", &gru_linearize);
  m.impl("lstm_linearize", &lstm_linearize);
}

}  // namespace weft::time_parallel
