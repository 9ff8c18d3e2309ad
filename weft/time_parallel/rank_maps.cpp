#include "weft/time_parallel/rank_maps.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "weft/collective/all_gather.h"

namespace weft::time_parallel {

using at::Tensor;

RankMaps gather_rank_maps(const Tensor& matrix, const Tensor& offset, const Tensor& extra, bool reverse,
                          const CommunicatorPtr& comm) {
  const at::AutoDispatchBelowAutograd guard;
  const std::int64_t ranks = comm->size();
  const Tensor message = at::cat({matrix.flatten(), offset.flatten(), extra.flatten()});
  Tensor gathered = collective::all_gather(message, comm).view({ranks, -1});
  if (reverse) gathered = gathered.flip(0);
  std::int64_t first = 0;
  const auto take = [&](const Tensor& like) {
    std::vector<std::int64_t> sizes{ranks};
    sizes.insert(sizes.end(), like.sizes().begin(), like.sizes().end());
    const Tensor part = gathered.narrow(1, first, like.numel());
    first += like.numel();
    return part.contiguous().view(sizes);
  };
  RankMaps maps;
  maps.matrices = take(matrix);
  maps.offsets = take(offset);
  maps.extras = take(extra);
  return maps;
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("gather_rank_maps",
        [](const Tensor& matrix, const Tensor& offset, const Tensor& extra, bool reverse, std::int64_t comm) {
          const RankMaps maps = gather_rank_maps(matrix, offset, extra, reverse, Communicator::find(comm));
          return std::tuple(maps.matrices, maps.offsets, maps.extras);
        });
}

}  // namespace weft::time_parallel
