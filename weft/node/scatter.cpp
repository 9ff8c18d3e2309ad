#include "weft/node/scatter.h"

#include "weft/mpi/collectives.h"
#include "weft/node/exchange.h"
#include "weft/node/pieces.h"

namespace weft::node {

std::unique_ptr<mpi::Operation> start_scatter(const std::vector<const void*>& pieces, void* out,
                                              std::span<const std::int64_t> bytes, int root, mpi::CommView comm,
                                              std::shared_ptr<void> keep) {
  auto group = group_for_pieces(comm, bytes, /*same_for_all=*/false);
  if (group == nullptr) return nullptr;
  std::vector<Given> given(bytes.size());
  std::vector<Taken> taken(bytes.size());
  if (group->rank() == root) {
    for (std::size_t rank = 0; rank < pieces.size(); ++rank) given[rank] = {pieces[rank], bytes[rank]};
  }
  taken[static_cast<std::size_t>(root)] = {out, bytes[static_cast<std::size_t>(group->rank())]};
  return start_exchange(std::move(group), "scatter", std::move(given), /*same_for_all=*/false, std::move(taken),
                        std::move(keep));
}

void scatter(const void* in, void* out, std::span<const std::int64_t> counts, mpi::Datatype type, int root,
             mpi::CommView comm, const Call& call) {
  const Pieces<const void*> pieces(in, counts, type);
  if (const auto operation =
          call.host_memory ? start_scatter(pieces.data, out, pieces.bytes, root, comm, call.keep) : nullptr) {
    return complete(*operation, call);
  }
  const mpi::BlockingScope blocking;
  mpi::scatter(in, out, counts, type, root, comm);
}

}  // namespace weft::node
