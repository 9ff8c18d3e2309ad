#include "weft/spatial/adaptive_pooling.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <limits>

#include "weft/collective/all_reduce.h"
#include "weft/spatial/dispatch.h"
#include "weft/spatial/exchange/exchange.h"
#include "weft/spatial/halo.h"
#include "weft/spatial/share.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Range;

constexpr std::int64_t kAdaptive = 12;  // first element of the cache key; see halo.cpp

// Returns the inputs of one output as torch cuts them. Neighbors may overlap.
Range inputs_of(std::int64_t output, std::int64_t size, std::int64_t outputs) {
  return {output * size / outputs, ((output + 1) * size + outputs - 1) / outputs};
}

Halo halo_for(const DistTensor& x, const Sizes& given) {
  x.validate();
  const auto shape = x.layout->shape();
  const auto outputs = for_each_dim(given, x.dims(), "output_size");
  for (std::size_t i = 0; i < shape.size(); ++i) {
    TORCH_CHECK_VALUE(outputs[i] > 0 && shape[i] > 0,
                      "weft: adaptive pooling expects positive input and output sizes, got ", shape[i], " and ",
                      outputs[i], " in dimension ", i);
  }
  return halo_by(
      x.layout, outputs, {kAdaptive},
      [&](std::size_t i, const Range& range) {
        return Range{inputs_of(range.begin, shape[i], outputs[i]).begin,
                     inputs_of(range.end - 1, shape[i], outputs[i]).end};
      },
      partition::Border::kZeros);
}

// Pools one dimension after the other. `reduce` gets the slice of each output.
template <class Reduce>
DistTensor adaptive(const DistTensor& x, const Sizes& outputs, Reduce&& reduce) {
  const Halo halo = halo_for(x, outputs);
  Tensor y = halo_exchange(x.local, halo.plan);
  const auto tile = halo.outputs->tile();
  const auto shape = x.layout->shape();
  const auto totals = halo.outputs->shape();
  for (std::size_t i = 0; i < x.dims() && !tile.empty(); ++i) {
    const std::int64_t dim = x.leading() + static_cast<std::int64_t>(i);
    std::vector<Tensor> slices;
    for (std::int64_t o = tile.ranges[i].begin; o < tile.ranges[i].end; ++o) {
      const Range inputs = inputs_of(o, shape[i], totals[i]);
      slices.push_back(reduce(y.narrow(dim, inputs.begin - halo.plan->needed().ranges[i].begin, inputs.size()), dim));
    }
    y = at::stack(slices, dim);
  }
  if (tile.empty()) y = nothing_like(y, halo.outputs->local_sizes(x.leading_sizes()));
  return {y, halo.outputs};
}

std::int64_t cells(const DistTensor& x) {
  x.validate();
  const std::int64_t count = c10::multiply_integers(x.layout->shape());
  TORCH_CHECK_VALUE(count > 0, "weft: cannot pool an empty field; expected positive sizes, got ",
                    at::IntArrayRef(x.layout->shape()));
  return count;
}

}  // namespace

DistTensor adaptive_average_pool(const DistTensor& x, const Sizes& outputs) {
  return adaptive(x, outputs, [](const Tensor& slice, std::int64_t dim) { return slice.mean(dim); });
}

DistTensor adaptive_max_pool(const DistTensor& x, const Sizes& outputs) {
  return adaptive(x, outputs, [](const Tensor& slice, std::int64_t dim) { return std::get<0>(at::max(slice, dim)); });
}

Tensor global_average_pool(const DistTensor& x) {
  const std::int64_t count = cells(x);
  const Tensor sum = x.local.sum(dims_between(x.leading(), x.local.dim()), /*keepdim=*/true);
  return counted_once(collective::all_reduce(sum, x.layout->comm()).div(count), x.layout->comm());
}

Tensor global_max_pool(const DistTensor& x) {
  (void)cells(x);
  auto sizes = x.leading_sizes().vec();
  sizes.resize(sizes.size() + x.dims(), 1);
  const Tensor largest =
      x.layout->tile().empty()
          ? at::full(sizes, -std::numeric_limits<double>::infinity(), x.local.options()).set_requires_grad(false)
          : at::amax(x.local, dims_between(x.leading(), x.local.dim()), /*keepdim=*/true);
  return counted_once(collective::all_reduce(largest, x.layout->comm(), mpi::ReduceOp::kMax), x.layout->comm());
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.def("tile_adaptive_avg_pool", &TileOperation<&adaptive_average_pool>::call);
  m.def("tile_adaptive_max_pool", &TileOperation<&adaptive_max_pool>::call);
  m.def("tile_global_avg_pool", &TileOperation<&global_average_pool>::call);
  m.def("tile_global_max_pool", &TileOperation<&global_max_pool>::call);
}

}  // namespace weft::spatial
