// Calling weft's operations through torch's dispatcher, so that autograd, tracing and other devices see them.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "weft/collective/call.h"
#include "weft/collective/comm.h"

namespace weft::collective {

// The handle of a registered operation; keep it in a function-local static, the look-up takes a lock.
template <class Function>
[[nodiscard]] c10::TypedOperatorHandle<Function> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Function>();
}

// Calls the kernel below autograd.
template <class Handle, class... Arguments>
auto below_autograd(const Handle& handle, Arguments&&... arguments) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return handle.call(std::forward<Arguments>(arguments)...);
}

// The forward-mode derivative of an input; zeros where this rank's input has none but another rank's has.
[[nodiscard]] inline at::Tensor tangent_of(const at::Tensor& x) {
  const at::Tensor tangent = x._fw_grad(/*level=*/0);
  return tangent.defined() ? tangent : at::zeros_like(x);
}

inline void set_tangent(const at::Tensor& y, const at::Tensor& tangent) {
  y._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
}

}  // namespace weft::collective
