// MPI's collectives with 64-bit counts, typed by Datatype and ReduceOp. Blocking; collective over `comm`.
//
// all_reduce, reduce, scan and exscan work in place if input and output are the same pointer; in the other functions
// they must not overlap. Counts are elements. Transfers above Options::max_count use chunks (reductions) or messages
// between pairs of ranks (functions with per-rank counts). All functions throw MpiError.
#pragma once

#include <cstdint>
#include <span>

#include "weft/mpi/comm.h"
#include "weft/mpi/datatype.h"
#include "weft/mpi/reduce_op.h"
#include "weft/mpi/request.h"

namespace weft::mpi {

using Counts = std::span<const std::int64_t>;

void all_reduce(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, CommView comm);
// `out` is written on the root only; other ranks may pass null.
void reduce(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, int root, CommView comm);
void broadcast(void* data, std::int64_t count, Datatype type, int root, CommView comm);
// Rank i contributes counts[i] elements; `out` holds them in rank order.
void all_gather(const void* in, void* out, Counts counts, Datatype type, CommView comm);
void gather(const void* in, void* out, Counts counts, Datatype type, int root, CommView comm);
void scatter(const void* in, void* out, Counts counts, Datatype type, int root, CommView comm);
// Sends send_counts[i] elements to rank i and receives recv_counts[i] from it, both packed in rank order.
void all_to_all(const void* in, Counts send_counts, void* out, Counts recv_counts, Datatype type, CommView comm);
// Like all_to_all() above, with `count_each` elements for every pair of ranks; equal on all ranks.
void all_to_all(const void* in, void* out, std::int64_t count_each, Datatype type, CommView comm);
// Rank i keeps counts[i] elements of the reduced vector.
void reduce_scatter(const void* in, void* out, Counts counts, Datatype type, ReduceOp op, CommView comm);
void scan(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, CommView comm);
// `out` stays unchanged on rank 0.
void exscan(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, CommView comm);

// Non-blocking forms. The buffers must stay alive until `request` completes; pass an owner to its constructor.
void all_reduce_start(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, CommView comm,
                      Request& request);
// `out` is written on the root only, as in reduce.
void reduce_start(const void* in, void* out, std::int64_t count, Datatype type, ReduceOp op, int root, CommView comm,
                  Request& request);
void broadcast_start(void* data, std::int64_t count, Datatype type, int root, CommView comm, Request& request);
void all_gather_start(const void* in, void* out, Counts counts, Datatype type, CommView comm, Request& request);

}  // namespace weft::mpi
