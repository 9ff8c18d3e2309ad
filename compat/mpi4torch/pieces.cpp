#include "compat/mpi4torch/pieces.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "weft/collective/all_gather.h"
#include "weft/collective/all_to_all.h"
#include "weft/collective/autograd/call.h"
#include "weft/collective/autograd/tape.h"
#include "weft/collective/gather.h"
#include "weft/collective/scatter.h"
#include "weft/collective/tensor.h"

namespace mpi4torch {
namespace {

using at::Tensor;
using weft::collective::Sizes;
using weft::collective::TapeScope;
using weft::mpi::OperationScope;

// Returns value() of every rank. If it throws on one rank, all ranks throw.
template <class Value>
Sizes exchanged(const char* name, const CommunicatorPtr& communicator, Value&& value) {
  weft::collective::CollectiveCall call(name, communicator->id());
  std::int64_t mine = 0;
  call.check([&] { mine = value(); });
  const auto outcome = call.agree(weft::collective::Signature(name), mine, [&] { return std::string(name); });
  return weft::collective::gather_sizes(call, outcome, mine);
}

// The sizes of the intersections of this rank's piece in partition `from` with all pieces of partition `to`.
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

Sizes numelem_of_all_ranks(const char* name, std::int64_t numelem, const CommunicatorPtr& communicator) {
  return exchanged(name, communicator, [&] {
    TORCH_CHECK(numelem >= 0, "mpi4torch: ", name, " expects numelem of at least 0, got ", numelem);
    return numelem;
  });
}

Tensor gather(const Tensor& x, std::int64_t axis, std::int64_t root, const CommunicatorPtr& communicator) {
  const OperationScope scope("Gather", communicator.get());
  const TapeScope no_tape(false);
  return weft::collective::gather(x, communicator, axis, root);
}

Tensor allgather(const Tensor& x, std::int64_t axis, const CommunicatorPtr& communicator) {
  const OperationScope scope("Allgather", communicator.get());
  const TapeScope no_tape(false);
  return weft::collective::all_gather(x, communicator, axis);
}

Tensor scatter(const Tensor& x, std::int64_t axis, std::int64_t numelem, std::int64_t root,
               const CommunicatorPtr& communicator) {
  const OperationScope scope("Scatter", communicator.get());
  const TapeScope no_tape(false);
  return weft::collective::scatter(x, communicator, axis, root, numelem_of_all_ranks("Scatter", numelem, communicator));
}

Tensor alltoall(const Tensor& x, std::int64_t gather_axis, std::int64_t scatter_axis, std::int64_t numelem,
                const CommunicatorPtr& communicator) {
  const OperationScope scope("Alltoall", communicator.get());
  const TapeScope no_tape(false);
  Sizes sizes = numelem_of_all_ranks("Alltoall", numelem, communicator);
  const std::int64_t dims = std::max<std::int64_t>(x.dim(), 1);
  if ((gather_axis - scatter_axis) % dims == 0) {
    const Sizes present = exchanged("Alltoall", communicator, [&] { return x.size(scatter_axis); });
    const auto total = weft::collective::total_of(present);
    TORCH_CHECK(weft::collective::total_of(sizes) == total,
                "mpi4torch: Alltoall along one axis expects numelem of all ranks to add up to ", total,
                " (the total size of the pieces), got ", at::IntArrayRef(sizes));
    sizes = overlaps(present, sizes, communicator->rank());
  }
  return weft::collective::all_to_all(x, communicator, scatter_axis, gather_axis, sizes);
}

}  // namespace mpi4torch
