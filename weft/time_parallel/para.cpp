#include "weft/time_parallel/para.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

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
    const auto x = input.chunk(3, 1);
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
    const auto x = input.chunk(3, 1);
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
      const Tensor grad_output = grads[0].defined() ? with_contiguous_features(grads[0]) : Tensor();
      const Tensor grad_final = grads[1].defined() ? grads[1].contiguous() : Tensor();
      const Tensor grad_input = empty_sequence(a.input, kShape.inputs * a.hidden());
      const Tensor grad_initial = at::empty_like(a.initial);
      // One sum per thread, so that the result does not depend on timing.
      const Tensor sums = at::zeros({at::get_num_threads(), kShape.weights, a.hidden()}, a.weight.options());
      AT_DISPATCH_FLOATING_TYPES(a.input.scalar_type(), Cell::kName, [&] {
        DiagonalBackward<scalar_t> call;
        call.grad_output = read<scalar_t>(grad_output);
        call.grad_final = pointer<scalar_t>(grad_final);
        call.input = read<scalar_t>(a.input);
        call.output = read<scalar_t>(saved[4]);
        call.carried = read<scalar_t>(saved[5]);
        call.initial = pointer<scalar_t>(a.initial);
        call.weight = pointer<scalar_t>(a.weight);
        call.grad_input = write<scalar_t>(grad_input);
        call.grad_initial = grad_initial.template mutable_data_ptr<scalar_t>();
        for_row_ranges(a.extent(), [&](const Extent& part) {
          auto mine = call;
          mine.extent = part;
          mine.grad_weight =
              sums.template mutable_data_ptr<scalar_t>() + at::get_thread_num() * kShape.weights * a.hidden();
          Cell::template of_processor<scalar_t>().backward(mine);
        });
      });
      return {grad_input, grad_initial, sums.sum(0), Tensor(), Tensor()};
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

  static Results linearize(const Tensor& input, const Tensor& before, const Tensor& weight) {
    TORCH_CHECK_VALUE(input.dim() == 2 && weight.dim() == 2, "weft: ", Cell::kName,
                      ": linearize expects input [rows, 3 * hidden] and weight [", kShape.weights, ", hidden], got ",
                      input.sizes(), " and ", weight.sizes());
    const std::int64_t rows = input.size(0), hidden = weight.size(1);
    check_argument(Cell::kName, "input", input, {rows, kShape.inputs * hidden}, input);
    check_argument(Cell::kName, "before", before, {rows, kShape.states * hidden}, input);
    check_argument(Cell::kName, "weight", weight, {kShape.weights, hidden}, input);
    const Tensor x = input.contiguous(), s = before.contiguous(), w = weight.contiguous();
    const Tensor next = at::empty_like(s);
    const Tensor jacobian = at::empty({rows, kShape.states, kShape.states, hidden}, s.options());
    AT_DISPATCH_FLOATING_TYPES(s.scalar_type(), Cell::kName, [&] {
      DiagonalLinearize<scalar_t> call;
      call.hidden = hidden;
      call.input = pointer<scalar_t>(x);
      call.before = pointer<scalar_t>(s);
      call.weight = pointer<scalar_t>(w);
      call.next = next.template mutable_data_ptr<scalar_t>();
      call.jacobian = jacobian.template mutable_data_ptr<scalar_t>();
      constexpr std::int64_t kMinRows = 64;
      at::parallel_for(0, rows, kMinRows, [&](std::int64_t first, std::int64_t end) {
        auto part = call;
        part.first_row = first;
        part.end_row = end;
        Cell::template of_processor<scalar_t>().linearize(part);
      });
    });
    return {next, jacobian};
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

Results para_gru_linearize(const Tensor& input, const Tensor& before, const Tensor& weight) {
  return Operation<ParaGru>::linearize(input, before, weight);
}

Results para_lstm_linearize(const Tensor& input, const Tensor& before, const Tensor& weight) {
  return Operation<ParaLstm>::linearize(input, before, weight);
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def(
      "para_gru_sequence(Tensor input, Tensor initial, Tensor weight, Tensor? lengths, bool reverse) "
      "-> (Tensor, Tensor)");
  m.def(
      "para_lstm_sequence(Tensor input, Tensor initial, Tensor weight, Tensor? lengths, bool reverse) "
      "-> (Tensor, Tensor)");
  m.def("para_gru_linearize(Tensor input, Tensor before, Tensor weight) -> (Tensor, Tensor)");
  m.def("para_lstm_linearize(Tensor input, Tensor before, Tensor weight) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(weft, CPU, m) {
  m.impl("para_gru_sequence", &Operation<ParaGru>::compute);
  m.impl("para_lstm_sequence", &Operation<ParaLstm>::compute);
  m.impl("para_gru_linearize", &para_gru_linearize);
  m.impl("para_lstm_linearize", &para_lstm_linearize);
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
