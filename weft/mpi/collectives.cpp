#include "weft/mpi/collectives.h"

#include <vector>

#include "weft/mpi/chunks.h"
#include "weft/mpi/error.h"
#include "weft/mpi/pairwise.h"

namespace weft::mpi {
namespace {

// Counts and displacements as MPI's int arrays.
struct IntCounts {
  std::vector<int> counts;
  std::vector<int> starts;

  explicit IntCounts(Counts wide) : counts(wide.begin(), wide.end()), starts(wide.size()) {
    std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), 0);
  }
};

const void* in_place_if(bool same, const void* pointer) noexcept { return same ? MPI_IN_PLACE : pointer; }

std::int64_t count_of(Counts counts, int rank) { return counts[static_cast<std::size_t>(rank)]; }

}  // namespace

void all_reduce(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, CommView comm) {
  const MPI_Op mpi_op = handle_of(op, type);
  for_each_chunk(count, [&](std::int64_t first, int n) {
    const void* from = in_place_if(in == out, at(in, first, size_of(type)));
    check(MPI_Allreduce(from, at(out, first, size_of(type)), n, handle_of(type), mpi_op, comm.handle()),
          "MPI_Allreduce", comm.handle());
  });
}

void reduce(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, int root, CommView comm) {
  const MPI_Op mpi_op = handle_of(op, type);
  const bool is_root = comm.rank() == root;
  for_each_chunk(count, [&](std::int64_t first, int n) {
    const void* from = in_place_if(is_root && in == out, at(in, first, size_of(type)));
    void* to = is_root ? at(out, first, size_of(type)) : nullptr;
    check(MPI_Reduce(from, to, n, handle_of(type), mpi_op, root, comm.handle()), "MPI_Reduce", comm.handle());
  });
}

void broadcast(void* data, std::int64_t count, Datatype type, int root, CommView comm) {
  for_each_chunk(count, [&](std::int64_t first, int n) {
    check(MPI_Bcast(at(data, first, size_of(type)), n, handle_of(type), root, comm.handle()), "MPI_Bcast",
          comm.handle());
  });
}

void all_gather(const void* in, void* out, Counts counts, Datatype type, CommView comm) {
  const std::int64_t mine = count_of(counts, comm.rank());
  if (!fits(counts)) {
    const std::vector<std::int64_t> to_each(counts.size(), mine);
    pairwise(in, to_each, /*same_for_all=*/true, out, counts, type, comm);
  } else if (all_equal(counts)) {
    check(MPI_Allgather(in, static_cast<int>(mine), handle_of(type), out, static_cast<int>(mine), handle_of(type),
                        comm.handle()),
          "MPI_Allgather", comm.handle());
  } else {
    const IntCounts narrow(counts);
    check(MPI_Allgatherv(in, static_cast<int>(mine), handle_of(type), out, narrow.counts.data(), narrow.starts.data(),
                         handle_of(type), comm.handle()),
          "MPI_Allgatherv", comm.handle());
  }
}

void gather(const void* in, void* out, Counts counts, Datatype type, int root, CommView comm) {
  const std::int64_t mine = count_of(counts, comm.rank());
  if (!fits(counts)) {
    std::vector<std::int64_t> to_each(counts.size(), 0);
    to_each[static_cast<std::size_t>(root)] = mine;
    const std::vector<std::int64_t> nothing(counts.size(), 0);
    pairwise(in, to_each, /*same_for_all=*/true, out, comm.rank() == root ? counts : Counts(nothing), type, comm);
    return;
  }
  const IntCounts narrow(counts);
  check(MPI_Gatherv(in, static_cast<int>(mine), handle_of(type), out, narrow.counts.data(), narrow.starts.data(),
                    handle_of(type), root, comm.handle()),
        "MPI_Gatherv", comm.handle());
}

void scatter(const void* in, void* out, Counts counts, Datatype type, int root, CommView comm) {
  const std::int64_t mine = count_of(counts, comm.rank());
  if (!fits(counts)) {
    std::vector<std::int64_t> from_each(counts.size(), 0);
    from_each[static_cast<std::size_t>(root)] = mine;
    const std::vector<std::int64_t> nothing(counts.size(), 0);
    pairwise(in, comm.rank() == root ? counts : Counts(nothing), /*same_for_all=*/false, out, from_each, type, comm);
    return;
  }
  const IntCounts narrow(counts);
  check(MPI_Scatterv(in, narrow.counts.data(), narrow.starts.data(), handle_of(type), out, static_cast<int>(mine),
                     handle_of(type), root, comm.handle()),
        "MPI_Scatterv", comm.handle());
}

void all_to_all(const void* in, Counts send_counts, void* out, Counts recv_counts, Datatype type, CommView comm) {
  // The counts may fit on some ranks only, but all ranks must take the same path.
  int local_fit = fits(send_counts) && fits(recv_counts) ? 1 : 0;
  int fit = 0;
  check(MPI_Allreduce(&local_fit, &fit, 1, MPI_INT, MPI_MIN, comm.handle()), "MPI_Allreduce", comm.handle());
  if (fit == 0) {
    pairwise(in, send_counts, /*same_for_all=*/false, out, recv_counts, type, comm);
    return;
  }
  const IntCounts sends(send_counts);
  const IntCounts receives(recv_counts);
  check(MPI_Alltoallv(in, sends.counts.data(), sends.starts.data(), handle_of(type), out, receives.counts.data(),
                      receives.starts.data(), handle_of(type), comm.handle()),
        "MPI_Alltoallv", comm.handle());
}

void all_to_all(const void* in, void* out, std::int64_t count_each, Datatype type, CommView comm) {
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()), count_each);
  if (!fits(counts)) {
    pairwise(in, counts, /*same_for_all=*/false, out, counts, type, comm);
    return;
  }
  const auto n = static_cast<int>(count_each);
  check(MPI_Alltoall(in, n, handle_of(type), out, n, handle_of(type), comm.handle()), "MPI_Alltoall", comm.handle());
}

void reduce_scatter(const void* in, void* out, Counts counts, Datatype type, ReduceOp op, CommView comm) {
  if (!fits(counts)) {
    std::int64_t first = 0;
    for (int root = 0; root < comm.size(); ++root) {
      reduce(at(in, first, size_of(type)), out, count_of(counts, root), type, op, root, comm);
      first += count_of(counts, root);
    }
    return;
  }
  const IntCounts narrow(counts);
  check(MPI_Reduce_scatter(in, out, narrow.counts.data(), handle_of(type), handle_of(op, type), comm.handle()),
        "MPI_Reduce_scatter", comm.handle());
}

void scan(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, CommView comm) {
  const MPI_Op mpi_op = handle_of(op, type);
  for_each_chunk(count, [&](std::int64_t first, int n) {
    const void* from = in_place_if(in == out, at(in, first, size_of(type)));
    check(MPI_Scan(from, at(out, first, size_of(type)), n, handle_of(type), mpi_op, comm.handle()), "MPI_Scan",
          comm.handle());
  });
}

void exscan(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, CommView comm) {
  const MPI_Op mpi_op = handle_of(op, type);
  for_each_chunk(count, [&](std::int64_t first, int n) {
    const void* from = in_place_if(in == out, at(in, first, size_of(type)));
    check(MPI_Exscan(from, at(out, first, size_of(type)), n, handle_of(type), mpi_op, comm.handle()), "MPI_Exscan",
          comm.handle());
  });
}

void all_reduce_start(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, CommView comm,
                      Request& request) {
  const MPI_Op mpi_op = handle_of(op, type);
  for_each_chunk(count, [&](std::int64_t first, int n) {
    const void* from = in_place_if(in == out, at(in, first, size_of(type)));
    check(MPI_Iallreduce(from, at(out, first, size_of(type)), n, handle_of(type), mpi_op, comm.handle(), request.add()),
          "MPI_Iallreduce", comm.handle());
  });
}

void reduce_start(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, int root, CommView comm,
                  Request& request) {
  const MPI_Op mpi_op = handle_of(op, type);
  const bool is_root = comm.rank() == root;
  for_each_chunk(count, [&](std::int64_t first, int n) {
    const void* from = in_place_if(is_root && in == out, at(in, first, size_of(type)));
    void* to = is_root ? at(out, first, size_of(type)) : nullptr;
    check(MPI_Ireduce(from, to, n, handle_of(type), mpi_op, root, comm.handle(), request.add()), "MPI_Ireduce",
          comm.handle());
  });
}

void broadcast_start(void* data, std::int64_t count, Datatype type, int root, CommView comm, Request& request) {
  for_each_chunk(count, [&](std::int64_t first, int n) {
    check(MPI_Ibcast(at(data, first, size_of(type)), n, handle_of(type), root, comm.handle(), request.add()),
          "MPI_Ibcast", comm.handle());
  });
}

void all_gather_start(const void* in, void* out, Counts counts, Datatype type, CommView comm, Request& request) {
  // Uses one broadcast per rank: MPI_Iallgatherv needs int arrays that outlive the call and counts that fit an int.
  std::int64_t first = 0;
  const std::int64_t mine = count_of(counts, comm.rank());
  for (int root = 0; root < comm.size(); ++root) {
    std::byte* piece = at(out, first, size_of(type));
    if (root == comm.rank()) std::copy_n(static_cast<const std::byte*>(in), mine * size_of(type), piece);
    broadcast_start(piece, count_of(counts, root), type, root, comm, request);
    first += count_of(counts, root);
  }
}

}  // namespace weft::mpi
