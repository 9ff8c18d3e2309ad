// mpi4torch's operations that gather and scatter pieces along an axis.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "weft/collective/autograd/sizes.h"
#include "weft/mpi/communicator.h"

namespace mpi4torch {

using weft::CommunicatorPtr;

// All are collective. Negative axes count from the last one.
[[nodiscard]] at::Tensor gather(const at::Tensor& x, std::int64_t axis, std::int64_t root,
                                const CommunicatorPtr& communicator);
[[nodiscard]] at::Tensor allgather(const at::Tensor& x, std::int64_t axis, const CommunicatorPtr& communicator);
// numelem: the size of this rank's piece along the axis. The sum over the ranks must be the size on the root.
[[nodiscard]] at::Tensor scatter(const at::Tensor& x, std::int64_t axis, std::int64_t numelem, std::int64_t root,
                                 const CommunicatorPtr& communicator);
// Gathers along one axis and scatters along another. If both are the same axis, it redistributes the pieces.
[[nodiscard]] at::Tensor alltoall(const at::Tensor& x, std::int64_t gather_axis, std::int64_t scatter_axis,
                                  std::int64_t numelem, const CommunicatorPtr& communicator);

// Collective. Returns numelem of every rank. Throws on all ranks if one is negative.
[[nodiscard]] weft::collective::Sizes numelem_of_all_ranks(const char* name, std::int64_t numelem,
                                                           const CommunicatorPtr& communicator);

}  // namespace mpi4torch
