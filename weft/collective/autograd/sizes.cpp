#include "weft/collective/autograd/sizes.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "weft/collective/autograd/call.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/options.h"
#include "weft/partition/range.h"

namespace weft::collective {

void save_sizes_for_backward(const Sizes& sizes) {
  if (auto* call = GradientCall::current()) call->set_sizes(sizes);
}

Sizes gather_sizes(const CollectiveCall& call, const mpi::AgreementResult& outcome, std::int64_t mine) {
  Sizes sizes(static_cast<std::size_t>(call.size()), mine);
  if (!outcome.same_value() || !mpi::options().check) {
    const Sizes one_each(sizes.size(), 1);
    mpi::all_gather(&mine, sizes.data(), one_each, mpi::Datatype::kInt64, call.channel());
  }
  save_sizes_for_backward(sizes);
  return sizes;
}

std::vector<std::int64_t> with_rows(const at::Tensor& front, std::int64_t rows) {
  auto shape = front.sizes().vec();
  shape[0] = rows;
  return shape;
}

GatherTarget::GatherTarget(CollectiveCall& call, const at::Tensor& front, std::int64_t mine,
                           std::optional<std::int64_t> root)
    : call_(call), front_(front), receives_(!root || *root == call.rank()) {
  if (front_.defined()) call_.attempt([&] { allocate_rows(mine * call_.size()); });
}

void GatherTarget::allocate_rows(std::int64_t rows) {
  target_ = at::Tensor();  // frees the memory first
  target_ = writable(with_rows(front_, receives_ ? rows : 0), front_);
}

at::Tensor GatherTarget::allocate(const mpi::AgreementResult& outcome, const Sizes& sizes,
                                  const std::function<std::string()>& describe) {
  if (!mpi::all_equal(sizes) || outcome.any_unprepared) {
    call_.confirm([&] { allocate_rows(total_of(sizes)); }, describe);
  } else if (!target_.defined()) {  // unknown to the other ranks, because Options::check is off
    allocate_rows(total_of(sizes));
  }
  return std::move(target_);
}

Sizes split_sizes(at::OptionalIntArrayRef given, std::int64_t total, int ranks) {
  if (!given.has_value()) return partition::balanced_sizes(total, ranks);
  Sizes sizes(given->begin(), given->end());
  TORCH_CHECK(static_cast<int>(sizes.size()) == ranks, "weft: expected one size per rank (", ranks, "), got ",
              sizes.size(), " sizes");
  TORCH_CHECK(std::all_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size >= 0; }),
              "weft: expected sizes of at least 0, got ", *given);
  TORCH_CHECK(total_of(sizes) == total, "weft: expected sizes that add up to ", total, ", got ", *given,
              " with the sum ", total_of(sizes));
  return sizes;
}

c10::SymInt traced_piece(const c10::SymInt& total, at::OptionalIntArrayRef given, const Communicator& communicator) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  if (given) return (*given)[rank];
  if (total.is_symbolic()) return total / communicator.size();
  return split_sizes(std::nullopt, total.expect_int(), communicator.size())[rank];
}

TracedTotal traced_total(const GradientCall& call, const at::Tensor& x, std::int64_t dim) {
  return call.on_tape() ? std::nullopt : TracedTotal(x.sym_size(dim));
}

std::vector<c10::SymInt> traced_whole(const at::Tensor& x, std::int64_t dim, const Communicator& communicator,
                                      const TracedTotal& total) {
  auto shape = x.dim() == 0 ? std::vector<c10::SymInt>{1} : x.sym_sizes().vec();
  auto& size = shape[static_cast<std::size_t>(wrap_dim(x, dim))];
  size = total.value_or(size * communicator.size());
  return shape;
}

Sizes element_counts(const Sizes& sizes, const at::Tensor& front) {
  const auto inner = c10::multiply_integers(front.sizes().slice(1));
  Sizes counts(sizes);
  for (auto& count : counts) count *= inner;
  return counts;
}

}  // namespace weft::collective
