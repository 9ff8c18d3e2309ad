#include "weft/collective/neighbour_exchange.h"

#include <c10/util/Exception.h>

#include "weft/collective/call.h"
#include "weft/collective/point_to_point.h"

namespace weft::collective {
namespace {

// Above what users' own messages are likely to take; one tag per dimension and side.
constexpr int kFirstTag = 32'000;

}  // namespace

std::vector<at::Tensor> neighbour_exchange(const std::vector<at::Tensor>& outgoing, const Comm& comm,
                                           std::source_location where) {
  const mpi::OperationScope scope("neighbour_exchange", comm.get(), where);
  const auto origin = comm->origin();
  TORCH_CHECK(origin.is_cart(), "weft: neighbour_exchange needs a communicator made by cart(), '", comm->name(),
              "' is none");
  const auto grid = origin.grid();
  const std::size_t sides = 2 * grid.extents.size();
  TORCH_CHECK(outgoing.size() == sides, "weft: neighbour_exchange on a grid of ", grid.extents.size(),
              " dimensions expects ", sides, " tensors (before and after in each), got ", outgoing.size());
  std::vector<std::optional<std::int64_t>> peers(sides);
  for (std::size_t side = 0; side < sides; ++side) {
    const auto neighbours = origin.neighbours(static_cast<int>(side / 2));
    const int peer = side % 2 == 0 ? neighbours.before : neighbours.after;
    if (peer != MPI_PROC_NULL) peers[side] = peer;
    TORCH_CHECK(!peers[side] || outgoing[side].defined(), "weft: neighbour_exchange expects a tensor for side ", side,
                ", where rank ", peer, " is the neighbour");
  }
  std::vector<c10::intrusive_ptr<Pending>> sends;
  for (std::size_t side = 0; side < sides; ++side) {
    if (peers[side]) sends.push_back(isend(outgoing[side], comm, *peers[side], kFirstTag + static_cast<int>(side)));
  }
  std::vector<at::Tensor> incoming(sides);
  for (std::size_t side = 0; side < sides; ++side) {
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
