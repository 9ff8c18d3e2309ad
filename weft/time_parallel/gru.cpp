#include "weft/time_parallel/gru.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "weft/time_parallel/kernels/kernels.h"
#include "weft/time_parallel/recurrence.h"
#include "weft/time_parallel/sequence_tensor.h"

namespace weft::time_parallel {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace gru_op {

constexpr const char* kName = "gru_sequence";

const auto& handle() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("weft::gru_sequence", "").typed<decltype(gru_sequence)>();
  return op;
}

// The tensors of a call in the compute type, with contiguous features.
struct Arguments {
  Tensor input;
  Tensor initial;
  Tensor weight;
  Tensor bias;     // undefined if not given
  Tensor lengths;  // undefined if not given
  bool reverse = false;
  double implicit_step = 0;

  [[nodiscard]] std::int64_t hidden() const { return initial.size(1); }
  [[nodiscard]] Extent extent() const { return extent_of(input, hidden(), if_defined(lengths), reverse); }
};

Arguments prepare(const Tensor& input, const Tensor& initial, const Tensor& weight, const std::optional<Tensor>& bias,
                  const std::optional<Tensor>& lengths, bool reverse, double implicit_step) {
  TORCH_CHECK_VALUE(implicit_step >= 0, "weft: ", kName, " expects an implicit_step of at least 0, got ",
                    implicit_step);
  TORCH_CHECK_VALUE(input.dim() == 3 && initial.dim() == 2, "weft: ", kName,
                    " expects input [steps, batch, 3 * hidden] and initial [batch, hidden], got ", input.sizes(),
                    " and ", initial.sizes());
  const std::int64_t batch = input.size(1);
  const std::int64_t hidden = initial.size(1);
  check_argument(kName, "input", input, {input.size(0), batch, 3 * hidden}, input);
  check_argument(kName, "initial", initial, {batch, hidden}, input);
  check_argument(kName, "weight", weight, {3 * hidden, hidden}, input);
  if (bias && bias->defined()) check_argument(kName, "bias", *bias, {3 * hidden}, input);
  check_lengths(kName, lengths, input.size(0), batch);
  const auto in = [](const Tensor& x) { return to_compute_type(x).contiguous(); };
  return {with_contiguous_features(to_compute_type(input)),
          in(initial),
          in(weight),
          bias && bias->defined() ? in(*bias) : Tensor(),
          lengths.value_or(Tensor()),
          reverse,
          implicit_step};
}

struct Result {
  Tensor output;
  Tensor final_state;
  Tensor gates;  // undefined unless kept for backward
};

Result run(const Arguments& a, bool keep_gates) {
  Result result{empty_sequence(a.input, a.hidden()), at::empty_like(a.initial),
                keep_gates ? empty_sequence(a.input, 4 * a.hidden()) : Tensor()};
  AT_DISPATCH_FLOATING_TYPES(a.input.scalar_type(), kName, [&] {
    GruForward<scalar_t> call;
    call.input = read<scalar_t>(a.input);
    call.initial = pointer<scalar_t>(a.initial);
    call.weight = pointer<scalar_t>(a.weight);
    call.bias = pointer<scalar_t>(a.bias);
    call.implicit_step = static_cast<scalar_t>(a.implicit_step);
    call.output = write<scalar_t>(result.output);
    call.final_state = result.final_state.mutable_data_ptr<scalar_t>();
    call.gates = write<scalar_t>(result.gates);
    for_row_ranges(a.extent(), [&](const Extent& part) {
      auto mine = call;
      mine.extent = part;
      kernels<scalar_t>().gru_forward(mine);
    });
  });
  return result;
}

// The same recurrence with torch's operations, for second derivatives.
variable_list composite(const Arguments& a) {
  const auto step = [&](const Tensor& x, const Tensors& state) -> Tensors {
    const Tensor& h = state[0];
    const Tensor product = a.bias.defined() ? at::addmm(a.bias, h, a.weight.t()) : at::mm(h, a.weight.t());
    const auto in = x.chunk(3, 1);
    const auto from_state = product.chunk(3, 1);
    const Tensor r = (in[0] + from_state[0]).sigmoid();
    const Tensor z = (in[1] + from_state[1]).sigmoid();
    const Tensor n = (in[2] + r * from_state[2]).tanh();
    const Tensor kept = a.implicit_step == 0 ? z : 1 / (1 + a.implicit_step * (1 - z));
    return {n + kept * (h - n)};
  };
  auto [outputs, states] = run_steps(a.input, {a.initial}, if_defined(a.lengths), a.reverse, step);
  return {outputs, states[0]};
}

struct Function : torch::autograd::Function<Function> {
  static constexpr std::size_t kArguments = 7;

  static variable_list forward(AutogradContext* context, const Tensor& input, const Tensor& initial,
                               const Tensor& weight, const std::optional<Tensor>& bias,
                               const std::optional<Tensor>& lengths, bool reverse, double implicit_step) {
    const Arguments a{input,   initial,      weight, bias.value_or(Tensor()), lengths.value_or(Tensor()),
                      reverse, implicit_step};
    const Result result = run(a, /*keep_gates=*/true);
    context->save_for_backward({input, initial, weight, a.bias, a.lengths, result.output, result.gates});
    context->saved_data["reverse"] = reverse;
    context->saved_data["implicit_step"] = implicit_step;
    context->set_materialize_grads(false);
    return {result.output, result.final_state};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Arguments a{saved[0],
                      saved[1],
                      saved[2],
                      saved[3],
                      saved[4],
                      context->saved_data["reverse"].toBool(),
                      context->saved_data["implicit_step"].toDouble()};
    if (!grads[0].defined() && !grads[1].defined()) return variable_list(kArguments);
    if (at::GradMode::is_enabled()) {
      return differentiable_gradients({a.input, a.initial, a.weight, a.bias}, grads, kArguments,
                                      [&] { return composite(a); });
    }

    const std::int64_t hidden = a.hidden();
    const Tensor grad_output = grads[0].defined() ? with_contiguous_features(grads[0]) : Tensor();
    const Tensor grad_final = grads[1].defined() ? grads[1].contiguous() : Tensor();
    const Tensor grad_input = empty_sequence(a.input, 3 * hidden);
    const Tensor grad_candidate = empty_sequence(a.input, hidden);
    const Tensor previous = empty_sequence(a.input, hidden);
    const Tensor grad_initial = at::empty_like(a.initial);
    AT_DISPATCH_FLOATING_TYPES(a.input.scalar_type(), kName, [&] {
      GruBackward<scalar_t> call;
      call.grad_output = read<scalar_t>(grad_output);
      call.grad_final = pointer<scalar_t>(grad_final);
      call.output = read<scalar_t>(saved[5]);
      call.gates = read<scalar_t>(saved[6]);
      call.initial = pointer<scalar_t>(a.initial);
      call.weight = pointer<scalar_t>(a.weight);
      call.implicit_step = static_cast<scalar_t>(a.implicit_step);
      call.grad_input = write<scalar_t>(grad_input);
      call.grad_candidate = write<scalar_t>(grad_candidate);
      call.previous = write<scalar_t>(previous);
      call.grad_initial = grad_initial.mutable_data_ptr<scalar_t>();
      for_row_ranges(a.extent(), [&](const Extent& part) {
        auto mine = call;
        mine.extent = part;
        kernels<scalar_t>().gru_backward(mine);
      });
    });
    // One product for all steps. The gradient of W h + b is that of the input, except for the candidate n.
    const Tensor gates = as_matrix(grad_input).narrow(1, 0, 2 * hidden);
    const Tensor candidate = as_matrix(grad_candidate);
    const Tensor states = as_matrix(previous);
    Tensor grad_weight;
    Tensor grad_bias;
    if (context->needs_input_grad(2)) grad_weight = at::cat({at::mm(gates.t(), states), at::mm(candidate.t(), states)});
    if (a.bias.defined() && context->needs_input_grad(3)) grad_bias = at::cat({gates.sum(0), candidate.sum(0)});
    return {grad_input, grad_initial, grad_weight, grad_bias, Tensor(), Tensor(), Tensor()};
  }
};

using Results = std::tuple<Tensor, Tensor>;

// Below autograd, for inference.
Results compute(const Tensor& input, const Tensor& initial, const Tensor& weight, const std::optional<Tensor>& bias,
                const std::optional<Tensor>& lengths, bool reverse, double implicit_step) {
  const Result result =
      run(prepare(input, initial, weight, bias, lengths, reverse, implicit_step), /*keep_gates=*/false);
  return {result.output.to(input.scalar_type()), result.final_state.to(input.scalar_type())};
}

Results differentiate(const Tensor& input, const Tensor& initial, const Tensor& weight,
                      const std::optional<Tensor>& bias, const std::optional<Tensor>& lengths, bool reverse,
                      double implicit_step) {
  if (!needs_gradient({input, initial, weight, bias.value_or(Tensor())})) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return handle().call(input, initial, weight, bias, lengths, reverse, implicit_step);
  }
  const Arguments a = prepare(input, initial, weight, bias, lengths, reverse, implicit_step);
  const auto results = Function::apply(a.input, a.initial, a.weight, if_defined(a.bias), if_defined(a.lengths),
                                       a.reverse, a.implicit_step);
  return {results[0].to(input.scalar_type()), results[1].to(input.scalar_type())};
}

}  // namespace gru_op

std::tuple<Tensor, Tensor> gru_sequence(const Tensor& input, const Tensor& initial, const Tensor& weight,
                                        const std::optional<Tensor>& bias, const std::optional<Tensor>& lengths,
                                        bool reverse, double implicit_step) {
  return gru_op::handle().call(input, initial, weight, bias, lengths, reverse, implicit_step);
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def(
      "gru_sequence(Tensor input, Tensor initial, Tensor weight, Tensor? bias, Tensor? lengths, bool reverse, "
      "float implicit_step=0) "
      "-> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(weft, CPU, m) { m.impl("gru_sequence", &gru_op::compute); }
TORCH_LIBRARY_IMPL(weft, AutogradCPU, m) { m.impl("gru_sequence", &gru_op::differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) {
  m.impl("gru_sequence", [](const Tensor& input, const Tensor& initial, const Tensor&, const std::optional<Tensor>&,
                            const std::optional<Tensor>&, bool, double) {
    return std::tuple(empty_sequence(input, initial.size(1)), at::empty_like(initial));
  });
}

}  // namespace weft::time_parallel
