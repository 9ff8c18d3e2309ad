// Calls of weft's operations through torch's dispatcher, for autograd, tracing and other devices. Include it in source
// files only: it pulls in the dispatcher.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "weft/collective/autograd/call.h"
#include "weft/collective/autograd/node.h"
#include "weft/mpi/communicator.h"

namespace weft::collective {

// Returns the handle of a registered operation. The look-up takes a lock; keep the handle in a function-local static.
template <class Function>
[[nodiscard]] c10::TypedOperatorHandle<Function> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Function>();
}

// Calls the communicating kernel, below autograd.
template <class Handle, class... Arguments>
auto below_autograd(const Handle& handle, Arguments&&... arguments) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return handle.call(std::forward<Arguments>(arguments)...);
}

// The forward-mode derivative of an input; zeros if only the inputs of other ranks have one.
[[nodiscard]] inline at::Tensor tangent_of(const at::Tensor& x) {
  const at::Tensor tangent = x._fw_grad(/*level=*/0);
  return tangent.defined() ? tangent : at::zeros_like(x);
}

inline void set_tangent(const at::Tensor& y, const at::Tensor& tangent) {
  y._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
}

}  // namespace weft::collective
