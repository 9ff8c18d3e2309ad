#include "weft/time_parallel/input_products.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "weft/time_parallel/recurrence.h"
#include "weft/time_parallel/sequence_tensor.h"

namespace weft::time_parallel {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace input_products_op {
namespace {

constexpr const char* kName = "input_products";

const auto& handle() {
  using Signature = Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("weft::input_products", "").typed<Signature>();
  return op;
}

void check(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  TORCH_CHECK_VALUE(x.dim() == 3 && weight.dim() == 2, "weft: ", kName,
                    " expects x [steps, batch, features] and weight [outputs, features], got ", x.sizes(), " and ",
                    weight.sizes());
  check_argument(kName, "weight", weight, {weight.size(0), x.size(2)}, x);
  if (bias) check_argument(kName, "bias", *bias, {weight.size(0)}, x);
}

// A copy if neither steps nor rows are contiguous.
Tensor in_memory_order(const Tensor& x) {
  return x.is_contiguous() || x.transpose(0, 1).is_contiguous() ? x : x.contiguous();
}

// x matrix + bias for each step and row; the bias may be undefined.
Tensor multiply(const Tensor& x, const Tensor& matrix, const Tensor& bias) {
  const Tensor result = empty_sequence(x, matrix.size(1));
  Tensor flat = as_matrix(result);
  if (bias.defined()) {
    at::addmm_out(flat, bias, as_matrix(x), matrix);
  } else {
    at::mm_out(flat, as_matrix(x), matrix);
  }
  return result;
}

// Below autograd, for inference.
Tensor compute(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  check(x, weight, bias);
  return multiply(in_memory_order(x), weight.t(), bias.value_or(Tensor()));
}

struct Function : torch::autograd::Function<Function> {
  // x: a result of in_memory_order.
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["biased"] = bias.has_value();
    return multiply(x, weight.t(), bias.value_or(Tensor()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    // The gradient has the memory order of the products unless torch's operations computed it.
    const bool batch_major = !x.is_contiguous();
    const auto flat = [&](const Tensor& y) {
      return (batch_major ? y.transpose(0, 1) : y).contiguous().view({-1, y.size(2)});
    };
    const Tensor grad = flat(grads[0]);
    Tensor grad_x;
    if (context->needs_input_grad(0)) {
      if (at::GradMode::is_enabled()) {
        grad_x = at::mm(grad, weight).view_as(batch_major ? x.transpose(0, 1) : x);
        if (batch_major) grad_x = grad_x.transpose(0, 1);
      } else {
        grad_x = empty_sequence(x, x.size(2));
        Tensor to = as_matrix(grad_x);
        at::mm_out(to, grad, weight);
      }
    }
    return {grad_x, context->needs_input_grad(1) ? at::mm(grad.t(), flat(x)) : Tensor(),
            context->saved_data["biased"].toBool() && context->needs_input_grad(2) ? grad.sum(0) : Tensor()};
  }
};

Tensor differentiate(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  check(x, weight, bias);
  if (!needs_gradient({x, weight, bias.value_or(Tensor())})) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return handle().call(x, weight, bias);
  }
  return Function::apply(in_memory_order(x), weight, bias);
}

}  // namespace
}  // namespace input_products_op

Tensor input_products(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  return input_products_op::handle().call(x, weight, bias);
}

TORCH_LIBRARY_FRAGMENT(weft, m) { m.def("input_products(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor"); }
TORCH_LIBRARY_IMPL(weft, CPU, m) { m.impl("input_products", &input_products_op::compute); }
TORCH_LIBRARY_IMPL(weft, AutogradCPU, m) { m.impl("input_products", &input_products_op::differentiate); }
TORCH_LIBRARY_IMPL(weft, Meta, m) {
  m.impl("input_products", [](const Tensor& x, const Tensor& weight, const std::optional<Tensor>&) {
    return empty_sequence(x, weight.size(0));
  });
}

}  // namespace weft::time_parallel
