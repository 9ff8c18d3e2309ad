#include "weft/node/broadcast.h"

#include "weft/mpi/collectives.h"
#include "weft/node/exchange.h"

namespace weft::node {

std::unique_ptr<mpi::Operation> start_broadcast(void* data, std::int64_t bytes, int root, mpi::CommView comm,
                                                std::shared_ptr<void> keep) {
  auto group = Group::of(comm);
  if (group == nullptr) return nullptr;
  if (!group->cross_memory() && bytes > largest_copy(*group, /*same_for_all=*/true)) return nullptr;
  const auto ranks = static_cast<std::size_t>(group->size());
  std::vector<Given> given(ranks);
  std::vector<Taken> taken(ranks);
  if (group->rank() == root) {
    given.assign(ranks, {data, bytes});
  } else {
    taken[static_cast<std::size_t>(root)] = {data, bytes};
  }
  return start_exchange(std::move(group), "broadcast", std::move(given), /*same_for_all=*/true, std::move(taken),
                        std::move(keep));
}

void broadcast(void* data, std::int64_t count, mpi::Datatype type, int root, mpi::CommView comm, const Call& call) {
  const std::int64_t bytes = count * mpi::size_of(type);
  if (const auto operation = call.host_memory ? start_broadcast(data, bytes, root, comm, call.keep) : nullptr)
    return complete(*operation, call);
  const mpi::BlockingScope blocking;
  mpi::broadcast(data, count, type, root, comm);
}

}  // namespace weft::node
