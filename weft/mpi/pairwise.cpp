#include "weft/mpi/pairwise.h"

#include <vector>

#include "weft/mpi/chunks.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

constexpr int kPairwiseTag = 0;

template <class Start>
void post(std::span<const std::int64_t> counts, bool same_start, Start&& start) {
  std::int64_t first = 0;
  for (std::size_t peer = 0; peer < counts.size(); ++peer) {
    if (counts[peer] > 0) {
      for_each_chunk(counts[peer],
                     [&](std::int64_t offset, int n) { start(static_cast<int>(peer), first + offset, n); });
    }
    if (!same_start) first += counts[peer];
  }
}

}  // namespace

void pairwise(const void* in, std::span<const std::int64_t> send_counts, bool same_for_all, void* out,
              std::span<const std::int64_t> recv_counts, Datatype type, CommView comm) {
  // A private communicator keeps these messages from matching those of the user. The path is rare and its transfers
  // are large, so the cost of a duplicate per call does not matter.
  const UniqueComm private_comm = comm.dup(comm.name() + ".pairwise");
  std::vector<MPI_Request> requests;
  const MPI_Datatype mpi_type = handle_of(type);
  post(recv_counts, false, [&](int peer, std::int64_t first, int n) {
    check(MPI_Irecv(at(out, first, size_of(type)), n, mpi_type, peer, kPairwiseTag, private_comm.handle(),
                    &requests.emplace_back()),
          "MPI_Irecv", private_comm.handle());
  });
  post(send_counts, same_for_all, [&](int peer, std::int64_t first, int n) {
    check(MPI_Isend(at(in, first, size_of(type)), n, mpi_type, peer, kPairwiseTag, private_comm.handle(),
                    &requests.emplace_back()),
          "MPI_Isend", private_comm.handle());
  });
  check(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall",
        private_comm.handle());
}

}  // namespace weft::mpi
