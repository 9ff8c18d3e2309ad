#include "weft/spatial/loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include "weft/collective/all_reduce.h"
#include "weft/spatial/dispatch.h"
#include "weft/spatial/share.h"

namespace weft::spatial {
namespace {

using at::Tensor;

Tensor total(const Tensor& mine, const CommunicatorPtr& comm) {
  return counted_once(collective::all_reduce(mine, comm), comm);
}

// Returns the divisor of the mean: the sum of the class weights of the targets.
Tensor weight_of(const Tensor& target, const OptionalTensor& class_weights, std::int64_t ignore_index,
                 const Tensor& like) {
  const Tensor counts = target.ne(ignore_index);
  if (!class_weights || !class_weights->defined()) return counts.sum().to(like.options());
  const Tensor known = target.masked_fill(counts.logical_not(), 0).reshape({-1});
  return class_weights->detach().index_select(0, known).mul(counts.reshape({-1})).sum();
}

}  // namespace

Tensor sum(const DistTensor& x) {
  x.validate();
  return total(x.local.sum(), x.layout->comm());
}

Tensor mean(const DistTensor& x) {
  const std::int64_t count = c10::multiply_integers(x.sizes());
  return sum(x).div(count);
}

Tensor cross_entropy(const DistTensor& logits, const Tensor& target, const OptionalTensor& class_weights, bool mean,
                     std::int64_t ignore_index, double label_smoothing) {
  logits.validate();
  auto expected = logits.local.sizes().vec();
  TORCH_CHECK_VALUE(logits.leading() == 2, "weft: cross_entropy expects logits [batch, classes, ...], got ",
                    logits.local.sizes());
  expected.erase(expected.begin() + 1);
  TORCH_CHECK_VALUE(target.sizes() == at::IntArrayRef(expected), "weft: expected targets of ",
                    at::IntArrayRef(expected), " (this rank's tile), got ", target.sizes());
  const Tensor mine = target.numel() == 0 ? logits.local.sum()
                                          : at::cross_entropy_loss(logits.local, target, class_weights,
                                                                   at::Reduction::Sum, ignore_index, label_smoothing);
  const CommunicatorPtr& comm = logits.layout->comm();
  if (!mean) return total(mine, comm);
  const Tensor weight = weight_of(target, class_weights, ignore_index, mine);
  const Tensor both = total(at::stack({mine, weight.detach()}), comm);
  return both[0].div(both[1].detach());
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.def("tile_sum", &TileOperation<&sum>::call);
  m.def("tile_mean", &TileOperation<&mean>::call);
  m.def("tile_cross_entropy", &TileOperation<&cross_entropy>::call);
}

}  // namespace weft::spatial
