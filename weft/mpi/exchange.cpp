#include "weft/mpi/exchange.h"

#include <cstring>
#include <deque>

#include "weft/mpi/chunks.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

void receive(const Incoming& piece, int tag, MPI_Comm comm, Request& request) {
  for_each_chunk(piece.bytes, [&](std::int64_t first, int n) {
    check(MPI_Irecv(at(piece.data, first, 1), n, MPI_BYTE, piece.source, tag, comm, request.add()), "MPI_Irecv", comm);
  });
}

void send(const Outgoing& piece, int tag, MPI_Comm comm, Request& request) {
  for_each_chunk(piece.bytes, [&](std::int64_t first, int n) {
    check(MPI_Isend(at(piece.data, first, 1), n, MPI_BYTE, piece.dest, tag, comm, request.add()), "MPI_Isend", comm);
  });
}

}  // namespace

std::unique_ptr<Operation> exchange(const std::vector<Outgoing>& outgoing, const std::vector<Incoming>& incoming,
                                    int tag, CommunicatorView comm, std::shared_ptr<void> keep) {
  Request request(std::move(keep));
  std::deque<Incoming> from_myself;
  for (const Incoming& piece : incoming) {
    if (piece.source == comm.rank()) {
      from_myself.push_back(piece);
    } else if (piece.bytes > 0) {
      receive(piece, tag, comm.handle(), request);
    }
  }
  for (const Outgoing& piece : outgoing) {
    if (piece.dest == comm.rank()) {
      if (piece.bytes > 0) std::memmove(from_myself.front().data, piece.data, static_cast<std::size_t>(piece.bytes));
      from_myself.pop_front();
    } else if (piece.bytes > 0) {
      send(piece, tag, comm.handle(), request);
    }
  }
  return std::make_unique<RequestOperation>(std::move(request));
}

}  // namespace weft::mpi
