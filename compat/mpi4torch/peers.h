// Argument checks of sends and receives.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <mpi.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "weft/collective/tensor.h"
#include "weft/mpi/communicator.h"

namespace mpi4torch {

inline void require_tag(std::int64_t tag, const weft::CommunicatorPtr& communicator) {
  const int most = communicator->origin().tag_upper_bound();
  TORCH_CHECK(tag >= 0 && tag <= most, "mpi4torch: expected a tag in [0, ", most, "], got ", tag);
}

inline void require_sendable(const at::Tensor& x) {
  weft::collective::require_communicable(x);
  TORCH_CHECK(!torch::autograd::isFwGradDefined(x),
              "mpi4torch: messages do not carry forward-mode derivatives; use a collective operation, or reverse mode");
}

}  // namespace mpi4torch
