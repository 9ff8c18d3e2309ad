#include "weft/layer_parallel/micro_batches.h"

#include <ATen/ops/cat.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace weft::layer_parallel {
namespace {

constexpr std::int64_t kPerRank = 4;

std::int64_t rows_in(const StateLayout& input) { return input.items.front().sizes.front(); }

}  // namespace

void require_rows(const StateLayout& input, std::int64_t requested) {
  for (const auto& item : input.items) {
    TORCH_CHECK_VALUE(!item.sizes.empty() && item.sizes.front() == rows_in(input),
                      "weft: the pipeline divides the first dimension of the input into micro-batches, so its tensors "
                      "need the same number of rows, got ",
                      input.describe());
  }
  TORCH_CHECK_VALUE(requested <= rows_in(input), "weft: a micro-batch needs at least one sample, got ", requested,
                    " micro-batches of ", rows_in(input),
                    " samples; pass a smaller micro_batches, or none to let weft choose");
}

std::vector<partition::Range> micro_batch_rows(const StateLayout& input, std::int64_t requested, int ranks) {
  const std::int64_t rows = rows_in(input);
  if (requested == 0)
    requested = ranks == 1 ? 1 : std::clamp<std::int64_t>(kPerRank * ranks, 1, std::max<std::int64_t>(rows, 1));
  std::vector<partition::Range> parts;
  for (std::int64_t m = 0; m < requested; ++m) parts.push_back(partition::balanced(rows, requested, m));
  return parts;
}

Tensors rows_of(const Tensors& state, partition::Range rows) {
  Tensors part;
  for (const auto& tensor : state) part.push_back(tensor.narrow(0, rows.begin, rows.size()));
  return part;
}

void require_rows_kept(const Tensors& output, partition::Range rows) {
  for (const auto& tensor : output) {
    TORCH_CHECK(tensor.dim() > 0 && tensor.size(0) == rows.size(), "weft: the pipeline passed ", rows.size(),
                " samples through the network, but its output is ", StateLayout::of(output).describe(),
                "; the layers must keep the samples in the first dimension, or use solver=\"mgrit\"");
  }
}

Tensors join(const std::vector<Tensors>& micro_batches) {
  if (micro_batches.size() == 1) return micro_batches.front();
  Tensors whole;
  for (std::size_t i = 0; i < micro_batches.front().size(); ++i) {
    Tensors parts;
    for (const auto& state : micro_batches) parts.push_back(state[i]);
    whole.push_back(at::cat(parts));
  }
  return whole;
}

}  // namespace weft::layer_parallel
