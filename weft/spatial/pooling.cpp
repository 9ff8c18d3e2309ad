#include "weft/spatial/pooling.h"

#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <limits>

#include "weft/spatial/dispatch.h"
#include "weft/spatial/exchange/exchange.h"
#include "weft/spatial/halo.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Window;

// A dilated window at an edge may contain no cell of a small field. torch then accesses memory out of bounds.
void require_cells(const std::vector<Window>& windows, const Sizes& shape) {
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const Window& w = windows[i];
    for (std::int64_t o = 0; w.dilation > shape[i] && o < w.outputs(shape[i]); ++o) {
      bool any = false;
      for (std::int64_t j = 0; j < w.kernel; ++j) {
        any = any || partition::Range{0, shape[i]}.contains(o * w.stride - w.padding_lo + j * w.dilation);
      }
      TORCH_CHECK_VALUE(any, "weft: max_pool window ", o, " in dimension ", i, " contains only padding: ", shape[i],
                        " cells are too few for dilation ", w.dilation);
    }
  }
}

// Calls `pool` with the padded tile unless this rank has no results.
template <class Pool>
DistTensor pooled(const DistTensor& x, const Halo& halo, double fill, Pool&& pool) {
  const Tensor padded = halo_exchange(x.local, halo.plan, fill);
  const Sizes sizes = halo.outputs->local_sizes(x.leading_sizes());
  if (c10::multiply_integers(sizes) == 0) return {nothing_like(padded, sizes), halo.outputs};
  return {pool(padded), halo.outputs};
}

Tensor sums(const Tensor& x, const std::vector<Window>& windows, const Sizes& padding) {
  switch (windows.size()) {
    case 1:  // avg_pool1d has no divisor in torch
      return at::avg_pool2d(x.unsqueeze(-2), {1, windows[0].kernel}, {1, windows[0].stride}, {0, padding[0]}, false,
                            true, 1)
          .squeeze(-2);
    case 2:
      return at::avg_pool2d(x, numbers_of(windows, &Window::kernel), numbers_of(windows, &Window::stride), padding,
                            false, true, 1);
    default:
      return at::avg_pool3d(x, numbers_of(windows, &Window::kernel), numbers_of(windows, &Window::stride), padding,
                            false, true, 1);
  }
}

// Returns the number of cells of each of this rank's windows in one dimension of the whole field.
Sizes counts(const Window& window, const partition::Range& outputs, std::int64_t size, bool include_padding) {
  Sizes result;
  for (std::int64_t o = outputs.begin; o < outputs.end; ++o) {
    const std::int64_t begin = o * window.stride - window.padding_lo;
    const std::int64_t end = std::min(begin + window.kernel, size + window.padding_hi);
    result.push_back(include_padding ? end - begin : std::min(end, size) - std::max<std::int64_t>(begin, 0));
  }
  return result;
}

Tensor averages(const Tensor& sum, const DistTensor& x, const Halo& halo, const std::vector<Window>& windows,
                const PoolingOptions& options) {
  if (options.divisor) return sum.div(*options.divisor);
  Tensor y = sum;
  const auto tile = halo.outputs->tile();
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const Sizes cells = counts(windows[i], tile.ranges[i], x.layout->shape()[i], options.count_include_pad);
    Sizes view(windows.size(), 1);
    view[i] = -1;
    const bool all_equal = std::all_of(cells.begin(), cells.end(), [&](auto cell) { return cell == cells[0]; });
    y = all_equal ? y.div(cells[0]) : y.div(at::tensor(at::IntArrayRef(cells), at::kLong).to(y.options()).view(view));
  }
  return y;
}

}  // namespace

std::vector<Window> windows_of(std::size_t dims, const PoolingOptions& options) {
  auto windows = windows_of(dims, options.kernel, options.stride.empty() ? options.kernel : options.stride,
                            options.padding, options.dilation);
  for (Window& window : windows) {
    TORCH_CHECK_VALUE(2 * window.padding_lo <= window.kernel, "weft: expected padding of at most half the kernel size ",
                      window.kernel, ", got ", window.padding_lo);
    window.ceil_mode = options.ceil_mode;
  }
  return windows;
}

Tensor largest(const Tensor& x, const std::vector<Window>& windows, const Sizes& padding) {
  const Sizes dilation = numbers_of(windows, &Window::dilation);
  switch (windows.size()) {
    case 1:
      return at::max_pool1d(x, numbers_of(windows, &Window::kernel), numbers_of(windows, &Window::stride), padding,
                            dilation);
    case 2:
      return at::max_pool2d(x, numbers_of(windows, &Window::kernel), numbers_of(windows, &Window::stride), padding,
                            dilation);
    default:
      return at::max_pool3d(x, numbers_of(windows, &Window::kernel), numbers_of(windows, &Window::stride), padding,
                            dilation);
  }
}

DistTensor max_pool(const DistTensor& x, const PoolingOptions& options) {
  x.validate();
  const auto windows = windows_of(x.dims(), options);
  require_cells(windows, x.layout->shape());
  const Halo halo = halo_of(x.layout, windows);
  return pooled(x, halo, -std::numeric_limits<double>::infinity(),
                [&](const Tensor& padded) { return largest(padded, windows, halo.native_padding); });
}

DistTensor average_pool(const DistTensor& x, const PoolingOptions& options) {
  TORCH_CHECK_VALUE(!options.divisor || *options.divisor != 0, "weft: expected a divisor other than 0");
  x.validate();
  const auto windows = windows_of(x.dims(), options);
  const Halo halo = halo_of(x.layout, windows);
  return pooled(x, halo, 0, [&](const Tensor& padded) {
    return averages(sums(padded, windows, halo.native_padding), x, halo, windows, options);
  });
}

DistTensor norm_pool(const DistTensor& x, double p, const PoolingOptions& options) {
  const DistTensor means = average_pool({p == 2 ? x.local.mul(x.local) : x.local.pow(p), x.layout}, options);
  const auto cells = c10::multiply_integers(for_each_dim(options.kernel, x.dims(), "kernel_size"));
  const Tensor sum = means.local.mul(cells);
  const Tensor nothing = sum.eq(0);
  return {sum.masked_fill(nothing, 1).pow(1 / p).masked_fill(nothing, 0), means.layout};
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.def("tile_max_pool", [](const Tensor& x, const LayoutPtr& layout, Sizes kernel, Sizes stride, Sizes padding,
                            Sizes dilation, bool ceil_mode) {
    return unpacked(max_pool(
        {x, layout}, {std::move(kernel), std::move(stride), std::move(padding), std::move(dilation), ceil_mode}));
  });
  m.def("tile_avg_pool", [](const Tensor& x, const LayoutPtr& layout, Sizes kernel, Sizes stride, Sizes padding,
                            bool ceil_mode, bool count_include_pad, std::optional<std::int64_t> divisor) {
    return unpacked(average_pool(
        {x, layout},
        {std::move(kernel), std::move(stride), std::move(padding), {1}, ceil_mode, count_include_pad, divisor}));
  });
  m.def("tile_lp_pool",
        [](const Tensor& x, const LayoutPtr& layout, double p, Sizes kernel, Sizes stride, bool ceil_mode) {
          return unpacked(norm_pool({x, layout}, p, {std::move(kernel), std::move(stride), {0}, {1}, ceil_mode}));
        });
}

}  // namespace weft::spatial
