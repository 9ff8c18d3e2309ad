#include "weft/time_parallel/sequence_tensor.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "weft/collective/pool.h"

namespace weft::time_parallel {

using at::Tensor;

Tensor with_contiguous_features(const Tensor& x) {
  if (x.size(-1) <= 1 || x.stride(-1) == 1) return x;
  // The gradient of a sum is one element for all; one step of one row of it is enough.
  const bool broadcast = x.numel() > 0 && x.stride(0) == 0 && x.stride(1) == 0;
  return broadcast ? x[0][0].contiguous().expand(x.sizes()) : x.contiguous();
}

Tensor empty_sequence(const Tensor& like, std::int64_t features) {
  const bool batch_major = like.size(0) > 1 && like.size(1) > 1 && like.stride(0) < like.stride(1);
  const auto allocate = [&](at::IntArrayRef sizes) {
    return like.is_cpu() ? collective::pooled_empty(sizes, like.scalar_type()) : at::empty(sizes, like.options());
  };
  if (batch_major) return allocate({like.size(1), like.size(0), features}).transpose(0, 1);
  return allocate({like.size(0), like.size(1), features});
}

Tensor as_matrix(const Tensor& x) {
  const Tensor ordered = x.is_contiguous() ? x : x.transpose(0, 1);
  return ordered.reshape({-1, x.size(2)});
}

Tensor to_compute_type(const Tensor& x) { return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat); }

Extent extent_of(const Tensor& input, std::int64_t hidden, const std::optional<Tensor>& lengths, bool reverse) {
  Extent extent;
  extent.steps = input.size(0);
  extent.end_row = input.size(1);
  extent.hidden = hidden;
  extent.reverse = reverse;
  extent.lengths = lengths && lengths->defined() ? lengths->const_data_ptr<std::int64_t>() : nullptr;
  return extent;
}

void check_lengths(const char* name, const std::optional<Tensor>& lengths, std::int64_t steps, std::int64_t batch) {
  if (!lengths || !lengths->defined()) return;
  TORCH_CHECK_VALUE(lengths->dim() == 1 && lengths->size(0) == batch && lengths->scalar_type() == at::kLong &&
                        lengths->device().is_cpu() && lengths->is_contiguous(),
                    "weft: ", name, " expects one int64 length per row of the batch (", batch, ") on the CPU, got ",
                    lengths->scalar_type(), " of shape ", lengths->sizes());
  const auto* values = lengths->const_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < batch; ++row) {
    TORCH_CHECK_VALUE(values[row] >= 0 && values[row] <= steps, "weft: ", name, ": the length of row ", row,
                      " must be in [0, ", steps, "], not ", values[row]);
  }
}

void check_argument(const char* name, const char* argument, const Tensor& x, at::IntArrayRef sizes,
                    const Tensor& like) {
  TORCH_CHECK_VALUE(x.sizes() == sizes, "weft: ", name, " expects ", argument, " of shape ", sizes, ", got ",
                    x.sizes());
  TORCH_CHECK_VALUE(x.scalar_type() == like.scalar_type() && x.device() == like.device(), "weft: ", name, " expects ",
                    argument, " of type ", like.scalar_type(), " on ", like.device(), ", got ", x.scalar_type(), " on ",
                    x.device());
}

}  // namespace weft::time_parallel
