#include "weft/node/gather.h"

#include "weft/mpi/collectives.h"
#include "weft/node/exchange.h"
#include "weft/node/pieces.h"

namespace weft::node {

std::unique_ptr<mpi::Operation> start_gather(const void* in, const std::vector<void*>& pieces,
                                             std::span<const std::int64_t> bytes, int root, mpi::CommView comm,
                                             std::shared_ptr<void> keep) {
  auto group = group_for_pieces(comm, bytes, /*same_for_all=*/true);
  if (group == nullptr) return nullptr;
  std::vector<Given> given(bytes.size());
  std::vector<Taken> taken(bytes.size());
  given[static_cast<std::size_t>(root)] = {in, bytes[static_cast<std::size_t>(group->rank())]};
  if (group->rank() == root) {
    for (std::size_t rank = 0; rank < pieces.size(); ++rank) taken[rank] = {pieces[rank], bytes[rank]};
  }
  return start_exchange(std::move(group), "gather", std::move(given), /*same_for_all=*/true, std::move(taken),
                        std::move(keep));
}

void gather(const void* in, void* out, std::span<const std::int64_t> counts, mpi::Datatype type, int root,
            mpi::CommView comm, const Call& call) {
  const Pieces<void*> pieces(out, counts, type);
  if (const auto operation =
          call.host_memory ? start_gather(in, pieces.data, pieces.bytes, root, comm, call.keep) : nullptr) {
    return complete(*operation, call);
  }
  const mpi::BlockingScope blocking;
  mpi::gather(in, out, counts, type, root, comm);
}

}  // namespace weft::node
