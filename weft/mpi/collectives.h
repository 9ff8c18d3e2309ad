// MPI's collectives with 64-bit counts, typed by Datatype and ReduceOp. Blocking; collective over `comm`.
//
// In all_reduce, reduce, scan and exscan a pointer given as both input and output means in place; elsewhere input and
// output must not overlap. Counts are elements. Transfers larger than Options::max_count are made in chunks
// (reductions) or by pairs of ranks (those with per-rank counts).
#pragma once

#include <cstdint>
#include <span>

#include "weft/mpi/communicator.h"
#include "weft/mpi/datatype.h"
#include "weft/mpi/reduce_op.h"
#include "weft/mpi/request.h"

namespace weft::mpi {

using Counts = std::span<const std::int64_t>;

void all_reduce(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, CommunicatorView comm);
// `out` is written on the root only; other ranks may pass null.
void reduce(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, int root, CommunicatorView comm);
void broadcast(void* data, std::int64_t count, Datatype type, int root, CommunicatorView comm);
// Rank i contributes counts[i] elements; `out` holds them in rank order.
void all_gather(const void* in, void* out, Counts counts, Datatype type, CommunicatorView comm);
void gather(const void* in, void* out, Counts counts, Datatype type, int root, CommunicatorView comm);
void scatter(const void* in, void* out, Counts counts, Datatype type, int root, CommunicatorView comm);
// Sends send_counts[i] elements to rank i and receives recv_counts[i] from it, both packed in rank order.
void all_to_all(const void* in, Counts send_counts, void* out, Counts recv_counts, Datatype type,
                CommunicatorView comm);
// The same with `count_each` elements, equal on all ranks, for every pair.
void all_to_all(const void* in, void* out, std::int64_t count_each, Datatype type, CommunicatorView comm);
// Rank i keeps counts[i] elements of the reduced vector.
void reduce_scatter(const void* in, void* out, Counts counts, Datatype type, ReduceOp op, CommunicatorView comm);
void scan(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, CommunicatorView comm);
// `out` is left as it was on rank 0.
void exscan(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, CommunicatorView comm);

// Non-blocking forms. The caller keeps the buffers alive, best by handing an owner to `request`.
void all_reduce_start(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, CommunicatorView comm,
                      Request& request);
// `out` as in reduce.
void reduce_start(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, int root,
                  CommunicatorView comm, Request& request);
void broadcast_start(void* data, std::int64_t count, Datatype type, int root, CommunicatorView comm, Request& request);
void all_gather_start(const void* in, void* out, Counts counts, Datatype type, CommunicatorView comm, Request& request);

}  // namespace weft::mpi
