#include "compat/mpi4torch/pieces.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "weft/collective/all_gather.h"
#include "weft/collective/all_to_all.h"
#include "weft/collective/gather.h"
#include "weft/collective/scatter.h"
#include "weft/collective/tape.h"
#include "weft/collective/tensor.h"

namespace mpi4torch {
namespace {

using at::Tensor;
using weft::collective::Sizes;
using weft::collective::TapeScope;
using weft::mpi::OperationScope;

// Every rank's value(), which may throw; then all ranks do.
template <class Value>
Sizes exchanged(const char* name, const Comm& team, Value&& value) {
  weft::collective::Negotiation talk(name, team->id());
  std::int64_t mine = 0;
  talk.check([&] { mine = value(); });
  const auto outcome = talk.agree(weft::collective::Signature(name), mine, [&] { return std::string(name); });
  return weft::collective::gather_sizes(talk, outcome, mine);
}

// How much of this rank's piece in one partition lies in each rank's piece of another.
Sizes overlaps(const Sizes& from, const Sizes& to, int rank) {
  const auto mine = from.begin() + rank;
  const std::int64_t first = std::accumulate(from.begin(), mine, std::int64_t{0});
  const std::int64_t last = first + *mine;
  Sizes result;
  std::int64_t start = 0;
  for (const std::int64_t size : to) {
    result.push_back(std::max<std::int64_t>(0, std::min(last, start + size) - std::max(first, start)));
    start += size;
  }
  return result;
}

}  // namespace

Sizes numelem_of_all_ranks(const char* name, std::int64_t numelem, const Comm& team) {
  return exchanged(name, team, [&] {
    TORCH_CHECK(numelem >= 0, "mpi4torch: ", name, " expects numelem of at least 0, got ", numelem);
    return numelem;
  });
}

Tensor gather(const Tensor& x, std::int64_t axis, std::int64_t root, const Comm& team) {
  const OperationScope scope("Gather", team.get());
  const TapeScope no_tape(false);
  return weft::collective::gather(x, team, axis, root);
}

Tensor allgather(const Tensor& x, std::int64_t axis, const Comm& team) {
  const OperationScope scope("Allgather", team.get());
  const TapeScope no_tape(false);
  return weft::collective::all_gather(x, team, axis);
}

Tensor scatter(const Tensor& x, std::int64_t axis, std::int64_t numelem, std::int64_t root, const Comm& team) {
  const OperationScope scope("Scatter", team.get());
  const TapeScope no_tape(false);
  return weft::collective::scatter(x, team, axis, root, numelem_of_all_ranks("Scatter", numelem, team));
}

Tensor alltoall(const Tensor& x, std::int64_t gather_axis, std::int64_t scatter_axis, std::int64_t numelem,
                const Comm& team) {
  const OperationScope scope("Alltoall", team.get());
  const TapeScope no_tape(false);
  Sizes sizes = numelem_of_all_ranks("Alltoall", numelem, team);
  const std::int64_t dims = std::max<std::int64_t>(x.dim(), 1);
  if ((gather_axis - scatter_axis) % dims == 0) {
    const Sizes present = exchanged("Alltoall", team, [&] { return x.size(scatter_axis); });
    const auto total = weft::collective::total_of(present);
    TORCH_CHECK(weft::collective::total_of(sizes) == total, "mpi4torch: Alltoall along one axis expects numelem that ",
                "add up to the ", total, " elements that all ranks hold, got ", at::IntArrayRef(sizes));
    sizes = overlaps(present, sizes, team->rank());
  }
  return weft::collective::all_to_all(x, team, scatter_axis, gather_axis, sizes);
}

}  // namespace mpi4torch
