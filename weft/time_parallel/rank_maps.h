// The affine maps of all ranks, s -> matrix s + offset: the part of a linear recurrence that crosses ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/mpi/communicator.h"

namespace weft::time_parallel {

// Maps in the order of the recurrence, with the number of the rank as the first dimension. linear_scan_() applies them.
struct RankMaps {
  at::Tensor matrices, offsets;
  at::Tensor extras;  // further values of each rank
};

// Collective: one exchange of messages. Not differentiable.
// matrix: [batch, blocks, blocks, lanes]. offset: [batch, blocks * lanes]. extra: any shape. All of one type, with
// equal shapes on all ranks. reverse: the recurrence runs from the last rank to the first.
[[nodiscard]] RankMaps gather_rank_maps(const at::Tensor& matrix, const at::Tensor& offset, const at::Tensor& extra,
                                        bool reverse, const CommunicatorPtr& comm);

}  // namespace weft::time_parallel
