#include "weft/spatial/rank_grid.h"

#include <c10/util/Exception.h>

#include "weft/collective/autograd/call.h"

namespace weft::spatial {
namespace {

// Checks that all ranks pass the same grid; otherwise all throw.
partition::Grid agreed_grid(const CommunicatorPtr& comm, Sizes extents) {
  collective::CollectiveCall call("rank_grid", comm->id());
  const at::IntArrayRef given(extents);
  call.check([&] {
    const partition::Grid grid(extents);
    TORCH_CHECK_VALUE(grid.size() == comm->size(), "weft: a grid of ", grid.describe(), " needs ", grid.size(),
                      " ranks, but '", comm->name(), "' has ", comm->size(), "; start the job with mpirun -n ",
                      grid.size(), ", or change the grid");
  });
  call.agree(collective::Signature("rank_grid").add(given), 0, [&] {
    std::ostringstream text;
    text << "rank_grid(" << given << ")";
    return text.str();
  });
  return partition::Grid(std::move(extents));
}

}  // namespace

RankGrid::RankGrid(const CommunicatorPtr& comm, Sizes extents)
    : grid_(agreed_grid(comm, std::move(extents))), comm_(Communicator::over(comm->origin(), "tiles")) {}

const Route& RankGrid::route(const Sizes& key, const std::function<Route()>& make) {
  const std::lock_guard lock(mutex_);
  const auto found = routes_.find(key);
  if (found != routes_.end()) return found->second;
  return routes_.emplace(key, make()).first->second;
}

}  // namespace weft::spatial
