#include "weft/collective/neighbour_exchange.h"

#include <c10/util/Exception.h>
#include <torch/library.h>

#include <optional>
#include <string>

#include "weft/collective/autograd/call.h"
#include "weft/collective/point_to_point.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/control_tags.h"

namespace weft::collective {
namespace {

// One tag per dimension and side, between the tags of other operations and of transfers on the same channel. Messages
// with equal tags arrive in order, so tags may repeat on grids with many dimensions.
int tag_of(std::size_t side) {
  constexpr int kFirstTag = 128;
  return kFirstTag + static_cast<int>(side % (mpi::kFirstTransferTag - kFirstTag));
}

// The previous and next neighbour in each dimension; nullopt at the edge of the grid.
using Peers = std::vector<std::optional<std::int64_t>>;

Peers find_peers(const std::vector<at::Tensor>& outgoing, const Communicator& communicator) {
  const auto origin = communicator.origin();
  TORCH_CHECK(origin.is_cart(), "weft: neighbour_exchange requires a communicator made by cart(); '",
              communicator.name(), "' is not Cartesian");
  const std::size_t dims = origin.cart_topology().extents.size();
  TORCH_CHECK(outgoing.size() == 2 * dims, "weft: neighbour_exchange on a grid of ", dims, " dimensions expects ",
              2 * dims, " tensors (previous and next in each), got ", outgoing.size());
  Peers peers(2 * dims);
  for (std::size_t side = 0; side < peers.size(); ++side) {
    const auto neighbours = origin.neighbours(static_cast<int>(side / 2));
    const int peer = side % 2 == 0 ? neighbours.before : neighbours.after;
    if (peer == MPI_PROC_NULL) continue;
    peers[side] = peer;
    TORCH_CHECK(outgoing[side].defined(), "weft: neighbour_exchange expects a tensor for entry ", side,
                ", whose neighbour is rank ", peer);
    require_message(outgoing[side], "neighbour_exchange");
  }
  return peers;
}

std::vector<at::Tensor> exchange(const std::vector<at::Tensor>& outgoing, const Peers& peers,
                                 const CommunicatorPtr& comm, mpi::CommView channel) {
  std::vector<c10::intrusive_ptr<PendingOperation>> sends;
  for (std::size_t side = 0; side < peers.size(); ++side) {
    if (peers[side]) sends.push_back(isend_on(channel, outgoing[side], comm, *peers[side], tag_of(side)));
  }
  std::vector<at::Tensor> incoming(peers.size());
  for (std::size_t side = 0; side < peers.size(); ++side) {
    if (!peers[side]) continue;
    // The previous neighbour sent to its next neighbour, and vice versa.
    const auto receiving = irecv_on(channel, std::nullopt, comm, peers[side], tag_of(side ^ 1U));
    incoming[side] = wait(receiving).to(outgoing[side].device());
  }
  for (const auto& sending : sends) wait(sending);
  return incoming;
}

}  // namespace

std::vector<at::Tensor> neighbour_exchange(const std::vector<at::Tensor>& outgoing, const CommunicatorPtr& comm,
                                           std::source_location where) {
  const mpi::OperationScope scope("neighbour_exchange", comm.get(), where);
  CollectiveCall call("neighbour_exchange", comm->id());
  Peers peers;
  // All ranks learn of one rank's invalid arguments before any of them waits for a neighbour.
  call.check([&] { peers = find_peers(outgoing, *comm); });
  call.agree(Signature("neighbour_exchange"), 0, [] { return std::string("neighbour_exchange(...)"); });
  return call.run([&] { return exchange(outgoing, peers, comm, call.channel()); });
}

namespace {

using OptionalTensors = std::vector<std::optional<at::Tensor>>;

OptionalTensors exchange_op(const OptionalTensors& outgoing, std::int64_t comm) {
  std::vector<at::Tensor> tensors;
  for (const auto& tensor : outgoing) tensors.push_back(tensor.value_or(at::Tensor()));
  OptionalTensors result;
  for (auto& tensor : neighbour_exchange(tensors, Communicator::find(comm))) {
    result.push_back(tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt);
  }
  return result;
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("neighbour_exchange(Tensor?[] outgoing, int comm) -> Tensor?[]", &exchange_op);
}

}  // namespace
}  // namespace weft::collective
