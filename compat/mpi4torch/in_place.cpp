#include "compat/mpi4torch/in_place.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>

#include "compat/mpi4torch/check_on_all_ranks.h"
#include "weft/collective/autograd/node.h"

namespace mpi4torch {
namespace {

using at::Tensor;
using weft::CommunicatorPtr;
using weft::collective::OperationNode;
using weft::collective::variable_list;

struct ReuseAdjoint {
  variable_list operator()(OperationNode& /*node*/, variable_list&& /*gradients*/) const {
    TORCH_CHECK(false,
                "mpi4torch: Reuse of variables passed to in-place MPI kernels not supported! Use the tensor that ",
                "the operation returned, or pass it a clone.");
  }
};

}  // namespace

void require_writable(const Tensor& x, const char* name, const CommunicatorPtr& communicator) {
  check_on_all_ranks(name, communicator, [&] {
    TORCH_CHECK(at::has_internal_overlap(x) != at::MemOverlap::Yes, "mpi4torch: ", name,
                " works in place, but elements of this tensor share memory; pass a clone");
  });
}

Tensor write_through(const Tensor& x, const Tensor& y, const char* name, const CommunicatorPtr& communicator) {
  Tensor result(x.tensor_data());
  {
    const at::NoGradGuard no_grad;
    result.copy_(y.detach());
  }
  if (!y.requires_grad()) return result;
  torch::autograd::impl::set_gradient_edge(result, torch::autograd::impl::gradient_edge(y));
  // The newest node runs first in backward, so the error occurs before data is sent.
  if (x.requires_grad() && !x.is_leaf()) {
    weft::collective::record(name, communicator, {}, {x}, ReuseAdjoint{}, /*tape=*/false);
  }
  return result;
}

}  // namespace mpi4torch
