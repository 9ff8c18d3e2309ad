#include "weft/time_parallel/para.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "weft/collective/pool.h"
#include "weft/time_parallel/kernels/kernels.h"
#include "weft/time_parallel/recurrence.h"
#include "weft/time_parallel/sequence_tensor.h"

namespace weft::time_parallel {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

using Results = std::tuple<Tensor, Tensor>;

struct ParaGru {
  static constexpr const char* kName = "para_gru_sequence";
  static constexpr const char* kQualifiedName = "weft::para_gru_sequence";
  static constexpr DiagonalShape kShape = kParaGru;
  template <class T>
  static const DiagonalKernels<T>& of_processor() {
    return kernels<T>().para_gru;
  }
  // One step with torch's operations. Also the definition of the cell for second derivatives.
  static Tensor step(const Tensor& input, const Tensor& h, const Tensor& weight) {
    const auto x = (input + weight.narrow(0, 3, 3).flatten()).chunk(3, 1);
    const Tensor z = (x[0] + weight[0] * h).sigmoid();
    const Tensor r = (x[1] + weight[1] * h).sigmoid();
    const Tensor n = (x[2] + weight[2] * r * h).tanh();
    return h + z * (n - h);
  }
};

struct ParaLstm {
  static constexpr const char* kName = "para_lstm_sequence";
  static constexpr const char* kQualifiedName = "weft::para_lstm_sequence";
  static constexpr DiagonalShape kShape = kParaLstm;
  template <class T>
  static const DiagonalKernels<T>& of_processor() {
    return kernels<T>().para_lstm;
  }
  static Tensor step(const Tensor& input, const Tensor& state, const Tensor& weight) {
    const auto x = (input + weight.narrow(0, 5, 3).flatten()).chunk(3, 1);
    const auto s = state.chunk(2, 1);
    const Tensor f = (x[0] + weight[0] * s[0] + weight[3] * s[1]).sigmoid();
    const Tensor g = (x[2] + weight[2] * s[0]).tanh();
    const Tensor c = f * s[1] + (1 - f) * g;
    const Tensor o = (x[1] + weight[1] * s[0] + weight[4] * c).sigmoid();
    return at::cat({o * c.tanh(), c}, 1);
  }
};

// The operation `weft::para_..._sequence` of a cell.
template <class Cell>
struct Operation {
  static constexpr DiagonalShape kShape = Cell::kShape;
  static constexpr std::size_t kArguments = 5;
  using Signature = Results(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, bool);

  static const auto& handle() {
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow(Cell::kQualifiedName, "").template typed<Signature>();
    return op;
  }

  // The tensors of a call in the compute type, with contiguous features.
  struct Arguments {
    Tensor input, initial, weight;
    Tensor lengths;  // undefined if not given
    bool reverse = false;

    [[nodiscard]] std::int64_t hidden() const { return weight.size(1); }
    [[nodiscard]] Extent extent() const { return extent_of(input, hidden(), if_defined(lengths), reverse); }
  };

  static Arguments prepare(const Tensor& input, const Tensor& initial, const Tensor& weight,
                           const std::optional<Tensor>& lengths, bool reverse) {
    TORCH_CHECK_VALUE(input.dim() == 3 && weight.dim() == 2, "weft: ", Cell::kName,
                      " expects input [steps, batch, 3 * hidden] and weight [", kShape.weights, ", hidden], got ",
                      input.sizes(), " and ", weight.sizes());
    const std::int64_t batch = input.size(1), hidden = weight.size(1);
    check_argument(Cell::kName, "input", input, {input.size(0), batch, kShape.inputs * hidden}, input);
    check_argument(Cell::kName, "initial", initial, {batch, kShape.states * hidden}, input);
    check_argument(Cell::kName, "weight", weight, {kShape.weights, hidden}, input);
    check_lengths(Cell::kName, lengths, input.size(0), batch);
    return {with_contiguous_features(to_compute_type(input)), to_compute_type(initial).contiguous(),
            to_compute_type(weight).contiguous(), lengths.value_or(Tensor()), reverse};
  }

  struct Result {
    Tensor output, final_state;
    Tensor carried;  // undefined unless kept for backward
  };

  static Result run(const Arguments& a, bool keep) {
    const std::int64_t hidden = a.hidden();
    Result result{empty_sequence(a.input, hidden), at::empty_like(a.initial),
                  keep && kShape.states > 1 ? empty_sequence(a.input, (kShape.states - 1) * hidden) : Tensor()};
    AT_DISPATCH_FLOATING_TYPES(a.input.scalar_type(), Cell::kName, [&] {
      DiagonalForward<scalar_t> call;
      call.input = read<scalar_t>(a.input);
      call.initial = pointer<scalar_t>(a.initial);
      call.weight = pointer<scalar_t>(a.weight);
      call.output = write<scalar_t>(result.output);
      call.final_state = result.final_state.template mutable_data_ptr<scalar_t>();
      call.carried = write<scalar_t>(result.carried);
      for_row_ranges(a.extent(), [&](const Extent& part) {
        auto mine = call;
        mine.extent = part;
        Cell::template of_processor<scalar_t>().forward(mine);
      });
    });
    return result;
  }

  static variable_list composite(const Arguments& a) {
    const auto step = [&](const Tensor& x, const Tensors& state) -> Tensors {
      return {Cell::step(x, state[0], a.weight)};
    };
    auto [outputs, states] = run_steps(a.input, {a.initial}, if_defined(a.lengths), a.reverse, step);
    return {outputs.narrow(2, 0, a.hidden()), states[0]};
  }

  struct Gradients {
    Tensor input, initial, weight;
  };

  // output, carried: those of run(). The gradients of the results may be undefined.
  static Gradients adjoint(const Arguments& a, const Tensor& output, const Tensor& carried, const Tensor& of_output,
                           const Tensor& of_final) {
    const Tensor grad_output = of_output.defined() ? with_contiguous_features(of_output) : Tensor();
    const Tensor grad_final = of_final.defined() ? of_final.contiguous() : Tensor();
    const Gradients found{empty_sequence(a.input, kShape.inputs * a.hidden()), at::empty_like(a.initial),
                          at::zeros_like(a.weight)};
    const std::int64_t threads = at::get_num_threads();
    // One sum per thread, so that the result does not depend on timing.
    const Tensor sums =
        threads == 1 ? found.weight.unsqueeze(0) : at::zeros({threads, kShape.weights, a.hidden()}, a.weight.options());
    AT_DISPATCH_FLOATING_TYPES(a.input.scalar_type(), Cell::kName, [&] {
      DiagonalBackward<scalar_t> call;
      call.grad_output = read<scalar_t>(grad_output);
      call.grad_final = pointer<scalar_t>(grad_final);
      call.input = read<scalar_t>(a.input);
      call.output = read<scalar_t>(output);
      call.carried = read<scalar_t>(carried);
      call.initial = pointer<scalar_t>(a.initial);
      call.weight = pointer<scalar_t>(a.weight);
      call.grad_input = write<scalar_t>(found.input);
      call.grad_initial = found.initial.template mutable_data_ptr<scalar_t>();
      for_row_ranges(a.extent(), [&](const Extent& part) {
        auto mine = call;
        mine.extent = part;
        mine.grad_weight =
            sums.template mutable_data_ptr<scalar_t>() + at::get_thread_num() * kShape.weights * a.hidden();
        Cell::template of_processor<scalar_t>().backward(mine);
      });
    });
    return {found.input, found.initial, threads == 1 ? found.weight : sums.sum(0)};
  }

  struct Function : torch::autograd::Function<Function> {
    static variable_list forward(AutogradContext* context, const Tensor& input, const Tensor& initial,
                                 const Tensor& weight, const std::optional<Tensor>& lengths, bool reverse) {
      const Arguments a{input, initial, weight, lengths.value_or(Tensor()), reverse};
      const Result result = run(a, /*keep=*/true);
      context->save_for_backward({input, initial, weight, a.lengths, result.output, result.carried});
      context->saved_data["reverse"] = reverse;
      context->set_materialize_grads(false);
      return {result.output, result.final_state};
    }

    static variable_list backward(AutogradContext* context, const variable_list& grads) {
      const auto saved = context->get_saved_variables();
      const Arguments a{saved[0], saved[1], saved[2], saved[3], context->saved_data["reverse"].toBool()};
      if (!grads[0].defined() && !grads[1].defined()) return variable_list(kArguments);
      if (at::GradMode::is_enabled()) {
        return differentiable_gradients({a.input, a.initial, a.weight}, grads, kArguments,
                                        [&] { return composite(a); });
      }
      const auto found = adjoint(a, saved[4], saved[5], grads[0], grads[1]);
      return {found.input, found.initial, found.weight, Tensor(), Tensor()};
    }
  };

  // Below autograd, for inference.
  static Results compute(const Tensor& input, const Tensor& initial, const Tensor& weight,
                         const std::optional<Tensor>& lengths, bool reverse) {
    const Result result = run(prepare(input, initial, weight, lengths, reverse), /*keep=*/false);
    return {result.output.to(input.scalar_type()), result.final_state.to(input.scalar_type())};
  }

  static Results differentiate(const Tensor& input, const Tensor& initial, const Tensor& weight,
                               const std::optional<Tensor>& lengths, bool reverse) {
    if (!needs_gradient({input, initial, weight})) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      return handle().call(input, initial, weight, lengths, reverse);
    }
    const Arguments a = prepare(input, initial, weight, lengths, reverse);
    const auto results = Function::apply(a.input, a.initial, a.weight, if_defined(a.lengths), a.reverse);
    return {results[0].to(input.scalar_type()), results[1].to(input.scalar_type())};
  }

  static Results shape_only(const Tensor& input, const Tensor& initial, const Tensor& weight,
                            const std::optional<Tensor>&, bool) {
    return {empty_sequence(input, weight.size(1)), at::empty_like(initial)};
  }

  static std::tuple<Tensor, Tensor, Tensor> given_adjoint(const Tensor& grad_output, const Tensor& grad_final,
                                                          const Tensor& input, const Tensor& initial,
                                                          const Tensor& states, const Tensor& weight,
                                                          const std::optional<Tensor>& lengths, bool reverse) {
    const Arguments a = prepare(input, initial, weight, lengths, reverse);
    const std::int64_t hidden = a.hidden();
    check_argument(Cell::kName, "states", states, {input.size(0), input.size(1), kShape.states * hidden}, input);
    check_argument(Cell::kName, "grad_output", grad_output, {input.size(0), input.size(1), hidden}, input);
    check_argument(Cell::kName, "grad_final", grad_final, initial.sizes(), input);
    const Tensor each = with_contiguous_features(states);
    const Tensor carried = kShape.states > 1 ? each.narrow(2, hidden, (kShape.states - 1) * hidden) : Tensor();
    const Gradients found = adjoint(a, each.narrow(2, 0, hidden), carried, grad_output, grad_final);
    return {found.input, found.initial, found.weight};
  }

  static Sweep sweep(const Tensor& input, const Tensor& states, const Tensor& weight,
                     const std::optional<Tensor>& lengths, bool reverse, double scale, bool summary) {
    TORCH_CHECK_VALUE(states.dim() == 3 && states.size(0) > 0, "weft: ", Cell::kName,
                      ": sweep expects states [1 + steps, batch, states * hidden], got ", states.sizes());
    const Tensor before = states.contiguous();
    const Arguments a = prepare(input, before[0], weight, lengths, reverse);
    const std::int64_t steps = input.size(0), batch = input.size(1), hidden = a.hidden();
    check_argument(Cell::kName, "states", states, {steps + 1, batch, kShape.states * hidden}, input);
    const auto allocate = [&](at::IntArrayRef sizes) { return collective::pooled_empty(sizes, before.scalar_type()); };
    Sweep result{allocate(before.sizes()), allocate({batch}), allocate(a.initial.sizes()), Tensor(), Tensor()};
    if (summary) {
      result.jacobian = allocate({steps, batch, kShape.states, kShape.states, hidden});
      result.product = allocate({batch, kShape.states, kShape.states, hidden});
    }
    AT_DISPATCH_FLOATING_TYPES(before.scalar_type(), Cell::kName, [&] {
      DiagonalSweep<scalar_t> call;
      call.input = read<scalar_t>(a.input);
      call.weight = pointer<scalar_t>(a.weight);
      call.scale = static_cast<scalar_t>(scale);
      call.before = read<scalar_t>(before);
      call.after = write<scalar_t>(result.states);
      call.largest = result.largest.template mutable_data_ptr<scalar_t>();
      call.change = result.change.template mutable_data_ptr<scalar_t>();
      call.jacobian = write<scalar_t>(result.jacobian);
      if (summary) call.product = result.product.template mutable_data_ptr<scalar_t>();
      for_row_ranges(a.extent(), [&](const Extent& part) {
        auto mine = call;
        mine.extent = part;
        Cell::template of_processor<scalar_t>().sweep(mine);
      });
    });
    return result;
  }
};

}  // namespace

Results para_gru_sequence(const Tensor& input, const Tensor& initial, const Tensor& weight,
                          const std::optional<Tensor>& lengths, bool reverse) {
  return Operation<ParaGru>::handle().call(input, initial, weight, lengths, reverse);
}

Results para_lstm_sequence(const Tensor& input, const Tensor& initial, const Tensor& weight,
                           const std::optional<Tensor>& lengths, bool reverse) {
  return Operation<ParaLstm>::handle().call(input, initial, weight, lengths, reverse);
}

Sweep para_gru_sweep(const Tensor& input, const Tensor& states, const Tensor& weight,
                     const std::optional<Tensor>& lengths, bool reverse, double scale, bool summary) {
  return Operation<ParaGru>::sweep(input, states, weight, lengths, reverse, scale, summary);
}

Sweep para_lstm_sweep(const Tensor& input, const Tensor& states, const Tensor& weight,
                      const std::optional<Tensor>& lengths, bool reverse, double scale, bool summary) {
  return Operation<ParaLstm>::sweep(input, states, weight, lengths, reverse, scale, summary);
}

namespace {

// A sweep as torch's operations return it: without a summary, the last two tensors are undefined.
template <class Cell>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> sweep_tensors(const Tensor& input, const Tensor& states,
                                                                 const Tensor& weight,
                                                                 const std::optional<Tensor>& lengths, bool reverse,
                                                                 double scale, bool summary) {
  const Sweep found = Operation<Cell>::sweep(input, states, weight, lengths, reverse, scale, summary);
  return {found.states, found.largest, found.change, found.jacobian, found.product};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def(
      "para_gru_sequence(Tensor input, Tensor initial, Tensor weight, Tensor? lengths, bool reverse) "
      "-> (Tensor, Tensor)");
  m.def(
      "para_lstm_sequence(Tensor input, Tensor initial, Tensor weight, Tensor? lengths, bool reverse) "
      "-> (Tensor, Tensor)");
  m.def(
      "para_gru_sweep(Tensor input, Tensor states, Tensor weight, Tensor? lengths, bool reverse, float scale, "
      "bool summary) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "para_gru_adjoint(Tensor grad_output, Tensor grad_final, Tensor input, Tensor initial, Tensor states, "
      "Tensor weight, Tensor? lengths, bool reverse) -> (Tensor, Tensor, Tensor)");
  m.def(
      "para_lstm_sweep(Tensor input, Tensor states, Tensor weight, Tensor? lengths, bool reverse, float scale, "
      "bool summary) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "para_lstm_adjoint(Tensor grad_output, Tensor grad_final, Tensor input, Tensor initial, Tensor states, "
      "Tensor weight, Tensor? lengths, bool reverse) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(weft, CPU, m) {
  m.impl("para_gru_sequence", &Operation<ParaGru>::compute);
  m.impl("para_lstm_sequence", &Operation<ParaLstm>::compute);
  m.impl("para_gru_sweep", &sweep_tensors<ParaGru>);
  m.impl("para_gru_adjoint", &Operation<ParaGru>::given_adjoint);
  m.impl("para_lstm_sweep", &sweep_tensors<ParaLstm>);
  m.impl("para_lstm_adjoint", &Operation<ParaLstm>::given_adjoint);
}
TORCH_LIBRARY_IMPL(weft, AutogradCPU, m) {
  m.impl("para_gru_sequence", &Operation<ParaGru>::differentiate);
  m.impl("para_lstm_sequence", &Operation<ParaLstm>::differentiate);
}
TORCH_LIBRARY_IMPL(weft, Meta, m) {
  m.impl("para_gru_sequence", &Operation<ParaGru>::shape_only);
  m.impl("para_lstm_sequence", &Operation<ParaLstm>::shape_only);
}

}  // namespace weft::time_parallel
