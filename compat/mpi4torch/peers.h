// Checks that sender and receiver share.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <mpi.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "weft/collective/operator.h"
#include "weft/collective/tensor.h"

namespace mpi4torch {

inline void require_tag(std::int64_t tag, const weft::collective::Comm& team) {
  const int most = team->origin().tag_upper_bound();
  TORCH_CHECK(tag >= 0 && tag <= most, "mpi4torch: expected a tag in [0, ", most, "], got ", tag);
}

inline void require_sendable(const at::Tensor& x) {
  weft::collective::require_communicable(x);
  TORCH_CHECK(!torch::autograd::isFwGradDefined(x),
              "mpi4torch: forward-mode derivatives do not travel from rank to rank; ",
              "use a collective operation, or backward");
}

}  // namespace mpi4torch
