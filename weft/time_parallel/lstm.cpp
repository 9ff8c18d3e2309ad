#include "weft/time_parallel/lstm.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
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

namespace lstm_op {

constexpr const char* kName = "lstm_sequence";

const auto& handle() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("weft::lstm_sequence", "").typed<decltype(lstm_sequence)>();
  return op;
}

// The tensors of a call in the compute type, with contiguous features.
struct Arguments {
  Tensor input;
  Tensor initial;
  Tensor initial_cell;
  Tensor weight;
  Tensor bias;        // undefined if not given
  Tensor projection;  // undefined if not given
  Tensor lengths;     // undefined if not given
  bool reverse = false;

  [[nodiscard]] std::int64_t hidden() const { return initial_cell.size(1); }
  [[nodiscard]] std::int64_t projected() const { return initial.size(1); }
  [[nodiscard]] Extent extent() const { return extent_of(input, hidden(), if_defined(lengths), reverse); }
};

Arguments prepare(const Tensor& input, const Tensor& initial, const Tensor& initial_cell, const Tensor& weight,
                  const std::optional<Tensor>& bias, const std::optional<Tensor>& projection,
                  const std::optional<Tensor>& lengths, bool reverse) {
  TORCH_CHECK_VALUE(input.dim() == 3 && initial.dim() == 2 && initial_cell.dim() == 2, "weft: ", kName,
                    " expects input [steps, batch, 4 * hidden], initial [batch, projected] and initial_cell "
                    "[batch, hidden], got ",
                    input.sizes(), ", ", initial.sizes(), " and ", initial_cell.sizes());
  const std::int64_t batch = input.size(1);
  const std::int64_t hidden = initial_cell.size(1);
  const std::int64_t projected = projection && projection->defined() ? projection->size(0) : hidden;
  check_argument(kName, "input", input, {input.size(0), batch, 4 * hidden}, input);
  check_argument(kName, "initial", initial, {batch, projected}, input);
  check_argument(kName, "initial_cell", initial_cell, {batch, hidden}, input);
  check_argument(kName, "weight", weight, {4 * hidden, projected}, input);
  if (bias && bias->defined()) check_argument(kName, "bias", *bias, {4 * hidden}, input);
  if (projection && projection->defined()) {
    check_argument(kName, "projection", *projection, {projected, hidden}, input);
  }
  check_lengths(kName, lengths, input.size(0), batch);
  const auto in = [](const Tensor& x) { return to_compute_type(x).contiguous(); };
  const auto optional = [&](const std::optional<Tensor>& x) { return x && x->defined() ? in(*x) : Tensor(); };
  return {with_contiguous_features(to_compute_type(input)),
          in(initial),
          in(initial_cell),
          in(weight),
          optional(bias),
          optional(projection),
          lengths.value_or(Tensor()),
          reverse};
}

struct Result {
  Tensor output;
  Tensor final_state;
  Tensor final_cell;
  Tensor gates;  // undefined unless kept for backward
};

Result run(const Arguments& a, bool keep_gates) {
  Result result{empty_sequence(a.input, a.projected()), at::empty_like(a.initial), at::empty_like(a.initial_cell),
                keep_gates ? empty_sequence(a.input, 5 * a.hidden()) : Tensor()};
  AT_DISPATCH_FLOATING_TYPES(a.input.scalar_type(), kName, [&] {
    LstmForward<scalar_t> call;
    call.projected = a.projected();
    call.input = read<scalar_t>(a.input);
    call.initial = pointer<scalar_t>(a.initial);
    call.initial_cell = pointer<scalar_t>(a.initial_cell);
    call.weight = pointer<scalar_t>(a.weight);
    call.bias = pointer<scalar_t>(a.bias);
    call.projection = pointer<scalar_t>(a.projection);
    call.output = write<scalar_t>(result.output);
    call.final_state = result.final_state.mutable_data_ptr<scalar_t>();
    call.final_cell = result.final_cell.mutable_data_ptr<scalar_t>();
    call.gates = write<scalar_t>(result.gates);
    for_row_ranges(a.extent(), [&](const Extent& part) {
      auto mine = call;
      mine.extent = part;
      kernels<scalar_t>().lstm_forward(mine);
    });
  });
  return result;
}

// The same recurrence with torch's operations, for second derivatives.
variable_list composite(const Arguments& a) {
  const auto step = [&](const Tensor& x, const Tensors& state) -> Tensors {
    const Tensor product =
        a.bias.defined() ? at::addmm(a.bias, state[0], a.weight.t()) : at::mm(state[0], a.weight.t());
    const auto gates = (x + product).chunk(4, 1);
    const Tensor c = gates[1].sigmoid() * state[1] + gates[0].sigmoid() * gates[2].tanh();
    const Tensor h = gates[3].sigmoid() * c.tanh();
    return {a.projection.defined() ? at::mm(h, a.projection.t()) : h, c};
  };
  auto [outputs, states] = run_steps(a.input, {a.initial, a.initial_cell}, if_defined(a.lengths), a.reverse, step);
  return {outputs, states[0], states[1]};
}

struct Function : torch::autograd::Function<Function> {
  static constexpr std::size_t kArguments = 8;

  static variable_list forward(AutogradContext* context, const Tensor& input, const Tensor& initial,
                               const Tensor& initial_cell, const Tensor& weight, const std::optional<Tensor>& bias,
                               const std::optional<Tensor>& projection, const std::optional<Tensor>& lengths,
                               bool reverse) {
    const Arguments a{input,
                      initial,
                      initial_cell,
                      weight,
                      bias.value_or(Tensor()),
                      projection.value_or(Tensor()),
                      lengths.value_or(Tensor()),
                      reverse};
    const Result result = run(a, /*keep_gates=*/true);
    context->save_for_backward(
        {input, initial, initial_cell, weight, a.bias, a.projection, a.lengths, result.output, result.gates});
    context->saved_data["reverse"] = reverse;
    context->set_materialize_grads(false);
    return {result.output, result.final_state, result.final_cell};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Arguments a{saved[0], saved[1], saved[2], saved[3],
                      saved[4], saved[5], saved[6], context->saved_data["reverse"].toBool()};
    if (!grads[0].defined() && !grads[1].defined() && !grads[2].defined()) return variable_list(kArguments);
    if (at::GradMode::is_enabled()) {
      return differentiable_gradients({a.input, a.initial, a.initial_cell, a.weight, a.bias, a.projection}, grads,
                                      kArguments, [&] { return composite(a); });
    }

    const std::int64_t hidden = a.hidden();
    const std::int64_t projected = a.projected();
    const Tensor grad_output = grads[0].defined() ? with_contiguous_features(grads[0]) : Tensor();
    const Tensor grad_final = grads[1].defined() ? grads[1].contiguous() : Tensor();
    const Tensor grad_final_cell = grads[2].defined() ? grads[2].contiguous() : Tensor();
    const Tensor grad_input = empty_sequence(a.input, 4 * hidden);
    const Tensor previous = empty_sequence(a.input, projected);
    const Tensor unprojected = a.projection.defined() ? empty_sequence(a.input, hidden) : Tensor();
    const Tensor grad_projected = a.projection.defined() ? empty_sequence(a.input, projected) : Tensor();
    const Tensor grad_initial = at::empty_like(a.initial);
    const Tensor grad_initial_cell = at::empty_like(a.initial_cell);
    AT_DISPATCH_FLOATING_TYPES(a.input.scalar_type(), kName, [&] {
      LstmBackward<scalar_t> call;
      call.projected = projected;
      call.grad_output = read<scalar_t>(grad_output);
      call.grad_final = pointer<scalar_t>(grad_final);
      call.grad_final_cell = pointer<scalar_t>(grad_final_cell);
      call.output = read<scalar_t>(saved[7]);
      call.gates = read<scalar_t>(saved[8]);
      call.initial = pointer<scalar_t>(a.initial);
      call.initial_cell = pointer<scalar_t>(a.initial_cell);
      call.weight = pointer<scalar_t>(a.weight);
      call.projection = pointer<scalar_t>(a.projection);
      call.grad_input = write<scalar_t>(grad_input);
      call.previous = write<scalar_t>(previous);
      call.unprojected = write<scalar_t>(unprojected);
      call.grad_projected = write<scalar_t>(grad_projected);
      call.grad_initial = grad_initial.mutable_data_ptr<scalar_t>();
      call.grad_initial_cell = grad_initial_cell.mutable_data_ptr<scalar_t>();
      for_row_ranges(a.extent(), [&](const Extent& part) {
        auto mine = call;
        mine.extent = part;
        kernels<scalar_t>().lstm_backward(mine);
      });
    });
    // One product for all steps.
    const Tensor gates = as_matrix(grad_input);
    variable_list result(kArguments);
    result[0] = grad_input;
    result[1] = grad_initial;
    result[2] = grad_initial_cell;
    if (context->needs_input_grad(3)) result[3] = at::mm(gates.t(), as_matrix(previous));
    if (a.bias.defined() && context->needs_input_grad(4)) result[4] = gates.sum(0);
    if (a.projection.defined() && context->needs_input_grad(5)) {
      result[5] = at::mm(as_matrix(grad_projected).t(), as_matrix(unprojected));
    }
    return result;
  }
};

using Results = std::tuple<Tensor, Tensor, Tensor>;

// Below autograd, for inference.
Results compute(const Tensor& input, const Tensor& initial, const Tensor& initial_cell, const Tensor& weight,
                const std::optional<Tensor>& bias, const std::optional<Tensor>& projection,
                const std::optional<Tensor>& lengths, bool reverse) {
  const Result result = run(prepare(input, initial, initial_cell, weight, bias, projection, lengths, reverse), false);
  const auto out = [&](const Tensor& x) { return x.to(input.scalar_type()); };
  return {out(result.output), out(result.final_state), out(result.final_cell)};
}

Results differentiate(const Tensor& input, const Tensor& initial, const Tensor& initial_cell, const Tensor& weight,
                      const std::optional<Tensor>& bias, const std::optional<Tensor>& projection,
                      const std::optional<Tensor>& lengths, bool reverse) {
  if (!needs_gradient({input, initial, initial_cell, weight, bias.value_or(Tensor()), projection.value_or(Tensor())})) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return handle().call(input, initial, initial_cell, weight, bias, projection, lengths, reverse);
  }
  const Arguments a = prepare(input, initial, initial_cell, weight, bias, projection, lengths, reverse);
  const auto results = Function::apply(a.input, a.initial, a.initial_cell, a.weight, if_defined(a.bias),
                                       if_defined(a.projection), if_defined(a.lengths), a.reverse);
  const auto out = [&](const Tensor& x) { return x.to(input.scalar_type()); };
  return {out(results[0]), out(results[1]), out(results[2])};
}

}  // namespace lstm_op

std::tuple<Tensor, Tensor, Tensor> lstm_sequence(const Tensor& input, const Tensor& initial, const Tensor& initial_cell,
                                                 const Tensor& weight, const std::optional<Tensor>& bias,
                                                 const std::optional<Tensor>& projection,
                                                 const std::optional<Tensor>& lengths, bool reverse) {
  return lstm_op::handle().call(input, initial, initial_cell, weight, bias, projection, lengths, reverse);
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def(
      "lstm_sequence(Tensor input, Tensor initial, Tensor initial_cell, Tensor weight, Tensor? bias, "
      "Tensor? projection, Tensor? lengths, bool reverse) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(weft, CPU, m) { m.impl("lstm_sequence", &lstm_op::compute); }
TORCH_LIBRARY_IMPL(weft, AutogradCPU, m) { m.impl("lstm_sequence", &lstm_op::differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) {
  m.impl("lstm_sequence", [](const Tensor& input, const Tensor& initial, const Tensor& initial_cell, const Tensor&,
                             const std::optional<Tensor>&, const std::optional<Tensor>&, const std::optional<Tensor>&,
                             bool) {
    return std::tuple(empty_sequence(input, initial.size(1)), at::empty_like(initial), at::empty_like(initial_cell));
  });
}

}  // namespace weft::time_parallel
