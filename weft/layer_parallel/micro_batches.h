// The division of a batch into micro-batches: the rows of every tensor of a state.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/layer_parallel/states.h"
#include "weft/partition/range.h"

namespace weft::layer_parallel {

// Throws (TORCH_CHECK) unless all tensors of an input have the same number of rows, at least `requested` of them.
void require_rows(const StateLayout& input, std::int64_t requested);
// The rows of each micro-batch. requested: their number; 0 means four per rank, but at most one per row.
[[nodiscard]] std::vector<partition::Range> micro_batch_rows(const StateLayout& input, std::int64_t requested,
                                                             int ranks);
// Views of these rows of all tensors.
[[nodiscard]] Tensors rows_of(const Tensors& state, partition::Range rows);
// Throws (TORCH_CHECK) unless the output of a micro-batch has its rows.
void require_rows_kept(const Tensors& output, partition::Range rows);
// Concatenates the micro-batches of a batch.
[[nodiscard]] Tensors join(const std::vector<Tensors>& micro_batches);

}  // namespace weft::layer_parallel
