// Sizes of the ranks' pieces along a dimension, for operations that gather or scatter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/mpi/chunks.h"
#include "weft/mpi/communicator.h"

namespace weft::collective {

class CollectiveCall;
class GradientCall;

using Sizes = std::vector<std::int64_t>;
using mpi::total_of;

// Returns `mine` of every rank and saves the sizes for backward. The agreement must have had `mine` as its value: if
// all are equal, nothing is exchanged. Collective.
[[nodiscard]] Sizes gather_sizes(const CollectiveCall& call, const mpi::AgreementResult& outcome, std::int64_t mine);

// The shape of `front` with `rows` entries in the first dimension.
[[nodiscard]] std::vector<std::int64_t> with_rows(const at::Tensor& front, std::int64_t rows);

// Memory for the result of a gather, of which every rank, or the root only, gets all rows. Its size is known after the
// ranks have exchanged theirs. It is allocated for equal sizes before the agreement, and again, with a second
// agreement, if they are not equal.
class GatherTarget {
 public:
  // `front`: the input with the gathered dimension first, undefined if a check failed. `mine`: its rows.
  GatherTarget(CollectiveCall& call, const at::Tensor& front, std::int64_t mine,
               std::optional<std::int64_t> root = std::nullopt);

  // Collective. Throws on all ranks if a rank cannot allocate the memory. `describe` returns this rank's text.
  [[nodiscard]] at::Tensor allocate(const mpi::AgreementResult& outcome, const Sizes& sizes,
                                    const std::function<std::string()>& describe);

 private:
  void allocate_rows(std::int64_t rows);

  CollectiveCall& call_;
  at::Tensor front_;
  bool receives_;
  at::Tensor target_;
};

// Returns the given sizes, or a balanced split of `total` into one piece per rank. Throws (TORCH_CHECK) if the given
// sizes are invalid.
[[nodiscard]] Sizes split_sizes(at::OptionalIntArrayRef given, std::int64_t total, int ranks);

// Converts sizes along the first dimension of `front` to element counts.
[[nodiscard]] Sizes element_counts(const Sizes& sizes, const at::Tensor& front);

// The size of this rank's piece while tracing. Assumes that a symbolic total divides evenly.
[[nodiscard]] c10::SymInt traced_piece(const c10::SymInt& total, at::OptionalIntArrayRef given,
                                       const Communicator& communicator);

// The size of a concatenation of all ranks' tensors while tracing. A traced operation does not communicate, so it
// assumes equal sizes if the caller does not know the total. Adjoints know it: it is that of the input of their
// operation. Operators take it by value, as torch requires.
using TracedTotal = std::optional<c10::SymInt>;
// The size of the input x of an operation along `dim`, for its adjoint; nullopt unless `call` is traced.
[[nodiscard]] TracedTotal traced_total(const GradientCall& call, const at::Tensor& x, std::int64_t dim);

// The shape of the concatenation of all ranks' tensors along `dim` while tracing.
[[nodiscard]] std::vector<c10::SymInt> traced_whole(const at::Tensor& x, std::int64_t dim,
                                                    const Communicator& communicator,
                                                    const TracedTotal& total = std::nullopt);

// Stores the sizes in the current GradientCall, if any.
void save_sizes_for_backward(const Sizes& sizes);

}  // namespace weft::collective
