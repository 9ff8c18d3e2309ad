#include "weft/spatial/interior.h"

#include <ATen/core/grad_mode.h>

#include "weft/collective/pool.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Box;
using partition::Range;
using partition::Window;

Tensor region(Tensor x, const Box& box, const Box& origin) {
  for (std::size_t i = 0; i < box.dims(); ++i) {
    x = x.narrow(static_cast<std::int64_t>(i) + 2, box.ranges[i].begin - origin.ranges[i].begin, box.ranges[i].size());
  }
  return x;
}

}  // namespace

InteriorFirst::InteriorFirst(const DistTensor& x, const Halo& halo, const std::vector<Window>& windows, Kernel kernel)
    : x_(x), halo_(halo), windows_(windows), kernel_(std::move(kernel)), tile_(halo.outputs->tile()), interior_(tile_) {
  const Box owned = x.layout->tile();
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (!native(i)) interior_.ranges[i] = tile_.ranges[i].intersect(windows[i].within(owned.ranges[i]));
  }
}

bool InteriorFirst::possible(const DistTensor& x, const Halo& halo, const std::vector<Window>& /*windows*/) {
  return x.local.device().is_cpu() && !halo.outputs->tile().empty() && x.local.size(0) > 0;
}

// Where the kernel pads by itself the dimension is not cut, and all of it is there.
bool InteriorFirst::native(std::size_t dim) const {
  return halo_.plan->needed().ranges[dim] == Range{0, x_.layout->shape()[dim]} &&
         x_.layout->tiling().grid().extents()[dim] == 1;
}

Tensor InteriorFirst::convolved(const Tensor& from, const Box& origin, const Box& outputs) const {
  Box inputs;
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    inputs.ranges.push_back(native(i) ? origin.ranges[i] : windows_[i].needed(outputs.ranges[i]));
  }
  return apply_kernel(region(from, inputs, origin), kernel_);
}

void InteriorFirst::put(const Box& outputs, const Tensor& values) {
  if (!result_.defined()) {
    std::vector<std::int64_t> sizes{values.size(0), values.size(1)};
    for (const auto& range : tile_.ranges) sizes.push_back(range.size());
    result_ = collective::pooled_empty(sizes, values.scalar_type());
  }
  region(result_, outputs, tile_).copy_(values);
}

void InteriorFirst::compute_interior() {
  if (interior_.empty()) return;
  const at::NoGradGuard no_grad;
  put(interior_, convolved(x_.local, x_.layout->tile(), interior_));
}

Tensor InteriorFirst::compute_borders(const Tensor& padded) {
  // Slabs around the interior, dimension by dimension; without an interior the first slab is everything.
  Box rest = tile_;
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    const Range inner = interior_.empty() ? Range{rest.ranges[i].end, rest.ranges[i].end} : interior_.ranges[i];
    for (const Range part : {Range{rest.ranges[i].begin, inner.begin}, Range{inner.end, rest.ranges[i].end}}) {
      if (part.empty()) continue;
      Box slab = rest;
      slab.ranges[i] = part;
      put(slab, convolved(padded, halo_.plan->needed(), slab));
    }
    rest.ranges[i] = inner;
    if (inner.empty()) break;
  }
  return result_;
}

}  // namespace weft::spatial
