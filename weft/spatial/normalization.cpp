#include "weft/spatial/normalization.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "weft/collective/all_gather.h"
#include "weft/spatial/dispatch.h"
#include "weft/spatial/share.h"

namespace weft::spatial {
namespace {

using at::Tensor;

struct Moments {
  Tensor mean;
  Tensor variance;  // biased: divided by the count
};

// Returns the number of values in each rank's statistics if a cell has `each` values.
Tensor counts(const DistTensor& x, std::int64_t each, const Tensor& like) {
  Sizes result;
  for (const auto& tile : x.layout->tiling().tiles()) result.push_back(tile.volume() * each);
  return at::tensor(at::IntArrayRef(result), at::kLong).to(like.options());
}

// Combines every rank's mean and sum of squared deviations by the formula of Chan, Golub and LeVeque. Unlike sums of
// squares, it keeps its precision if the mean is large.
Moments joined(const Moments& mine, const Tensor& count, const CommunicatorPtr& comm) {
  if (comm->size() == 1) return mine;
  const auto me = comm->rank();
  const Tensor pair = at::stack({mine.mean, mine.variance.mul(count[me])}).unsqueeze(0);
  const Tensor all = collective::all_gather(pair, comm);
  Sizes sizes(static_cast<std::size_t>(mine.mean.dim()) + 1, 1);
  sizes[0] = -1;
  const Tensor n = count.view(sizes);
  const Tensor total = count.sum();
  const Tensor means = all.select(1, 0);
  const Tensor mean = means.mul(n).sum(0).div(total);
  const Tensor deviation = means.sub(mean);
  const Tensor squares = all.select(1, 1).sum(0).add(deviation.mul(deviation).mul(n).sum(0));
  return {mean, squares.div(total)};
}

// Returns the moments over `dims` of a view of the tile. The result has the other dimensions.
Moments moments(const Tensor& view, const Sizes& dims, const Tensor& count, const CommunicatorPtr& comm) {
  Moments mine;
  if (view.numel() > 0 && !view.is_meta()) {
    std::tie(mine.variance, mine.mean) = at::var_mean(view, dims, /*correction=*/0);
  } else {
    auto sizes = view.sizes().vec();
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) sizes.erase(sizes.begin() + *dim);
    mine = {at::zeros(sizes, view.options()), at::zeros(sizes, view.options())};
  }
  return joined(mine, count, comm);
}

// Returns x * scale + shift in one pass. Both have one number per statistic, viewed as `sizes`.
Tensor normalized(const Tensor& x, const Moments& moments, double eps, at::IntArrayRef sizes, const Affine& affine,
                  at::IntArrayRef affine_sizes) {
  Tensor scale = moments.variance.add(eps).rsqrt().view(sizes);
  if (affine.weight) scale = scale.mul(affine.weight->view(affine_sizes));
  Tensor shift = moments.mean.view(sizes).neg().mul(scale);
  if (affine.bias) shift = shift.add(affine.bias->view(affine_sizes));
  return at::addcmul(shift, x, scale);
}

void update(const Tensor& running, const Tensor& value, double average) {
  const at::NoGradGuard no_grad;
  running.mul_(1 - average).add_(value.detach().to(running.scalar_type()), average);
}

}  // namespace

DistTensor batch_norm(const DistTensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                      const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
                      double average, double eps) {
  x.validate_channels("batch_norm");
  const CommunicatorPtr& comm = x.layout->comm();
  Sizes sizes(x.dims() + 2, 1);
  sizes[1] = -1;
  const Affine affine = share(weight, bias, x);
  const bool has_running = running_mean && running_mean->defined();
  if (!training && has_running) {
    return {normalized(x.local, {matching(*running_mean, x.local), matching(*running_var, x.local)}, eps, sizes, affine,
                       sizes),
            x.layout};
  }
  const std::int64_t total = x.local.size(0) * c10::multiply_integers(x.layout->shape());
  TORCH_CHECK_VALUE(total > 1, "weft: batch_norm expects more than 1 value per channel when training, got ",
                    at::IntArrayRef(x.sizes()));
  auto dims = dims_between(1, x.local.dim());
  dims[0] = 0;
  const Moments all = moments(x.local, dims, counts(x, x.local.size(0), x.local), comm);
  if (has_running && !x.local.is_meta()) {
    update(*running_mean, all.mean, average);
    update(*running_var, all.variance.mul(static_cast<double>(total) / static_cast<double>(total - 1)), average);
  }
  return {normalized(x.local, all, eps, sizes, affine, sizes), x.layout};
}

DistTensor group_norm(const DistTensor& x, std::int64_t groups, const OptionalTensor& weight,
                      const OptionalTensor& bias, double eps) {
  x.validate_channels("group_norm");
  const std::int64_t batch = x.local.size(0);
  const std::int64_t channels = x.local.size(1);
  TORCH_CHECK_VALUE(groups > 0 && channels % groups == 0, "weft: group_norm expects groups that divide ", channels,
                    " channels, got ", groups);
  const std::int64_t each = channels / groups;
  const std::int64_t cells = x.layout->tile().volume();
  const Tensor view = x.local.reshape({batch, groups, each * cells});
  const Moments all = moments(view, {2}, counts(x, each, x.local), x.layout->comm());
  const Affine affine = share(weight, bias, x);
  const Tensor y = normalized(x.local.reshape({batch, groups, each, cells}), all, eps, {batch, groups, 1, 1}, affine,
                              {1, groups, each, 1});
  return {y.view(x.local.sizes()), x.layout};
}

DistTensor layer_norm(const DistTensor& x, const Sizes& shape, const OptionalTensor& weight, const OptionalTensor& bias,
                      double eps) {
  x.validate();
  const auto whole = x.sizes();
  const std::size_t kept = whole.size() - std::min(shape.size(), whole.size());
  TORCH_CHECK_VALUE(
      shape.size() >= x.dims() &&
          std::equal(shape.begin(), shape.end(), whole.begin() + static_cast<std::ptrdiff_t>(kept), whole.end()),
      "weft: layer_norm of tiles expects the last sizes of ", at::IntArrayRef(whole),
      ", including all tiled dimensions; got ", at::IntArrayRef(shape));
  const std::int64_t each = c10::multiply_integers(at::IntArrayRef(shape).slice(0, shape.size() - x.dims()));
  const auto dims = dims_between(static_cast<std::int64_t>(kept), x.local.dim());
  const Moments all = moments(x.local, dims, counts(x, each, x.local), x.layout->comm());
  Affine affine = share(weight, bias, x);
  if (affine.weight) affine.weight = tile_of(*affine.weight, x.layout).local;
  if (affine.bias) affine.bias = tile_of(*affine.bias, x.layout).local;
  auto sizes = x.local.sizes().vec();
  std::fill(sizes.begin() + static_cast<std::ptrdiff_t>(kept), sizes.end(), 1);
  const auto affine_sizes = x.local.sizes().slice(kept);
  return {normalized(x.local, all, eps, sizes, affine, affine_sizes), x.layout};
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.def("tile_batch_norm", &TileOperation<&batch_norm>::call);
  m.def("tile_group_norm", &TileOperation<&group_norm>::call);
  m.def("tile_layer_norm", &TileOperation<&layer_norm>::call);
}

}  // namespace weft::spatial
