// Sizes of the ranks' pieces along a dimension, for the operations that gather and scatter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/collective/call.h"
#include "weft/mpi/chunks.h"

namespace weft::collective {

using Sizes = std::vector<std::int64_t>;
using mpi::total_of;

// Every rank's `mine`: known from the agreement (which must have had it as value) where they are equal, exchanged
// where not. Told to the GradientCall under way.
[[nodiscard]] Sizes gather_sizes(const Negotiation& talk, const mpi::Outcome& outcome, std::int64_t mine);

// The sizes given, checked, or a balanced split of `total` into one piece per rank. Throws (TORCH_CHECK).
[[nodiscard]] Sizes split_sizes(at::OptionalIntArrayRef given, std::int64_t total, int ranks);

// Sizes along the first dimension of `front` to element counts.
[[nodiscard]] Sizes element_counts(const Sizes& sizes, const at::Tensor& front);

// The size of this rank's piece while tracing. A symbolic total is assumed to divide evenly.
[[nodiscard]] c10::SymInt traced_piece(const c10::SymInt& total, at::OptionalIntArrayRef given, const mpi::Team& team);

// The shape of all ranks' tensors joined along `dim` while tracing, which cannot ask the others: equal sizes are
// assumed.
[[nodiscard]] std::vector<c10::SymInt> traced_whole(const at::Tensor& x, std::int64_t dim, const mpi::Team& team);

void tell_gradient_call(const Sizes& sizes);

}  // namespace weft::collective
