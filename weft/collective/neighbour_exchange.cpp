#include "weft/collective/neighbour_exchange.h"

#include <c10/util/Exception.h>

#include <optional>
#include <string>

#include "weft/collective/call.h"
#include "weft/collective/operator.h"
#include "weft/collective/point_to_point.h"
#include "weft/collective/tensor.h"

namespace weft::collective {
namespace {

// Above what users' own messages are likely to take; one tag per dimension and side.
constexpr int kFirstTag = 32'000;

// The rank on each side of this one, before and after in each dimension; none beyond an edge.
using Peers = std::vector<std::optional<std::int64_t>>;

Peers find_peers(const std::vector<at::Tensor>& outgoing, const mpi::Team& team) {
  const auto origin = team.origin();
  TORCH_CHECK(origin.is_cart(), "weft: neighbour_exchange needs a communicator made by cart(), '", team.name(),
              "' is none");
  const std::size_t dims = origin.grid().extents.size();
  TORCH_CHECK(outgoing.size() == 2 * dims, "weft: neighbour_exchange on a grid of ", dims, " dimensions expects ",
              2 * dims, " tensors (before and after in each), got ", outgoing.size());
  Peers peers(2 * dims);
  for (std::size_t side = 0; side < peers.size(); ++side) {
    const auto neighbours = origin.neighbours(static_cast<int>(side / 2));
    const int peer = side % 2 == 0 ? neighbours.before : neighbours.after;
    if (peer == MPI_PROC_NULL) continue;
    peers[side] = peer;
    TORCH_CHECK(outgoing[side].defined(), "weft: neighbour_exchange expects a tensor for side ", side, ", where rank ",
                peer, " is the neighbour");
    require_communicable(outgoing[side]);
  }
  return peers;
}

// One rank's wrong arguments are told to all before anybody waits for a neighbour.
Peers agree_on_peers(const std::vector<at::Tensor>& outgoing, const mpi::Team& team) {
  Negotiation talk("neighbour_exchange", team.id());
  Peers peers;
  talk.check([&] { peers = find_peers(outgoing, team); });
  talk.agree(Signature("neighbour_exchange"), 0, [] { return std::string("neighbour_exchange(...)"); });
  return peers;
}

}  // namespace

std::vector<at::Tensor> neighbour_exchange(const std::vector<at::Tensor>& outgoing, const Comm& comm,
                                           std::source_location where) {
  const mpi::OperationScope scope("neighbour_exchange", comm.get(), where);
  const Peers peers = agree_on_peers(outgoing, *comm);
  std::vector<c10::intrusive_ptr<Pending>> sends;
  for (std::size_t side = 0; side < peers.size(); ++side) {
    if (peers[side]) sends.push_back(isend(outgoing[side], comm, *peers[side], kFirstTag + static_cast<int>(side)));
  }
  std::vector<at::Tensor> incoming(peers.size());
  for (std::size_t side = 0; side < peers.size(); ++side) {
    // The neighbour before sent to its side after, and the other way round.
    const int tag = kFirstTag + static_cast<int>(side ^ 1U);
    if (!peers[side]) continue;
    incoming[side] = recv(std::nullopt, comm, peers[side], tag).tensor.to(outgoing[side].device());
  }
  for (const auto& sending : sends) wait(sending);
  return incoming;
}

void barrier(const Comm& comm, std::source_location where) {
  const mpi::OperationScope scope("barrier", comm.get(), where);
  Negotiation talk("barrier", comm->id());
  talk.agree(Signature("barrier"), 0, [] { return std::string("barrier()"); });
  // The agreement is a barrier already; without it MPI's own is one.
  const mpi::BlockingScope blocking;
  talk.channel().barrier();
}

}  // namespace weft::collective
