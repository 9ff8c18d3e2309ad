#include "weft/node/all_to_all.h"

#include "weft/mpi/collectives.h"
#include "weft/node/pieces.h"

namespace weft::node {

// Each rank knows only its own pieces, so without cross-memory attach the ranks cannot choose by size.
std::unique_ptr<mpi::Operation> start_all_to_all(std::vector<Given> given, std::vector<Taken> taken, mpi::CommView comm,
                                                 std::shared_ptr<void> keep) {
  auto group = Group::of(comm);
  if (group == nullptr || !group->cross_memory()) return nullptr;
  return start_exchange(std::move(group), "all_to_all", std::move(given), /*same_for_all=*/false, std::move(taken),
                        std::move(keep));
}

void all_to_all(const void* in, std::span<const std::int64_t> send_counts, void* out,
                std::span<const std::int64_t> receive_counts, mpi::Datatype type, mpi::CommView comm,
                const Call& call) {
  const Pieces<const void*> sent(in, send_counts, type);
  const Pieces<void*> received(out, receive_counts, type);
  std::vector<Given> given;
  std::vector<Taken> taken;
  for (std::size_t rank = 0; rank < send_counts.size(); ++rank) {
    given.push_back({sent.data[rank], sent.bytes[rank]});
    taken.push_back({received.data[rank], received.bytes[rank]});
  }
  if (const auto operation =
          call.host_memory ? start_all_to_all(std::move(given), std::move(taken), comm, call.keep) : nullptr) {
    return complete(*operation, call);
  }
  const mpi::BlockingScope blocking;
  mpi::all_to_all(in, send_counts, out, receive_counts, type, comm);
}

}  // namespace weft::node
