// Exchange: every rank takes a piece of memory from each other rank. All collectives that do not reduce use it.
//
// Small pieces are copied through the segment, so their sender does not wait. The receiver of a large piece reads it
// from the sender's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/node/slot_operation.h"

namespace weft::node {

// Memory that a rank takes from this one.
struct Given {
  const void* data = nullptr;
  std::int64_t bytes = 0;
};
// Memory for a piece of another rank.
struct Taken {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

// given[i] goes to rank i, and taken[i] comes from rank i. Collective. Requires Group::cross_memory(), unless no piece
// exceeds largest_copy().
// kind: names the collective; must be equal on all ranks. same_for_all: all elements of `given` with bytes are equal.
[[nodiscard]] std::unique_ptr<mpi::Operation> start_exchange(std::shared_ptr<Group> group, const char* kind,
                                                             std::vector<Given> given, bool same_for_all,
                                                             std::vector<Taken> taken, std::shared_ptr<void> keep);

// The largest piece that is copied through the segment.
[[nodiscard]] std::int64_t largest_copy(const Group& group, bool same_for_all);

// Returns the group of the communicator if its ranks can exchange pieces of these sizes; else null. All ranks pass the
// same sizes. Collective at the first call, as Group::of().
[[nodiscard]] std::shared_ptr<Group> group_for_pieces(mpi::CommView comm, std::span<const std::int64_t> bytes,
                                                      bool same_for_all);

}  // namespace weft::node
