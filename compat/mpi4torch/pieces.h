// The operations that gather and scatter pieces along an axis.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "weft/collective/operator.h"
#include "weft/collective/sizes.h"

namespace mpi4torch {

using weft::collective::Comm;

// All collective; axes count from the end where they are negative.
[[nodiscard]] at::Tensor gather(const at::Tensor& x, std::int64_t axis, std::int64_t root, const Comm& team);
[[nodiscard]] at::Tensor allgather(const at::Tensor& x, std::int64_t axis, const Comm& team);
// `numelem`: how much this rank gets along the axis; the sum over the ranks is the root's size.
[[nodiscard]] at::Tensor scatter(const at::Tensor& x, std::int64_t axis, std::int64_t numelem, std::int64_t root,
                                 const Comm& team);
// Gather along one axis and scatter along another; along one and the same axis, another partition of what all ranks
// hold together.
[[nodiscard]] at::Tensor alltoall(const at::Tensor& x, std::int64_t gather_axis, std::int64_t scatter_axis,
                                  std::int64_t numelem, const Comm& team);

// Collective.
[[nodiscard]] weft::collective::Sizes numelem_of_all_ranks(const char* name, std::int64_t numelem, const Comm& team);

}  // namespace mpi4torch
