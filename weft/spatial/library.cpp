// The layers as torch's dispatcher sees them, for Python: a tile and its layout in, a tile and its layout out.
#include <torch/custom_class.h>
#include <torch/library.h>

#include <tuple>

#include "weft/spatial/adaptive_pooling.h"
#include "weft/spatial/contrast.h"
#include "weft/spatial/convolution.h"
#include "weft/spatial/dist_tensor.h"
#include "weft/spatial/dropout.h"
#include "weft/spatial/interpolation.h"
#include "weft/spatial/linear.h"
#include "weft/spatial/local_filter.h"
#include "weft/spatial/loss.h"
#include "weft/spatial/normalization.h"
#include "weft/spatial/pooling.h"
#include "weft/spatial/region.h"
#include "weft/spatial/share.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using Sizes = std::vector<std::int64_t>;
using Tiled = std::tuple<Tensor, LayoutPtr>;

Tiled unpacked(const DistTensor& y) { return {y.local, y.layout}; }

LayoutPtr layout_of(const RankGridPtr& grid, const std::vector<Sizes>& sizes) {
  std::vector<partition::Cuts> cuts;
  for (const Sizes& parts : sizes) cuts.push_back(partition::Cuts::of_sizes(parts));
  return c10::make_intrusive<Layout>(grid, partition::Tiling(grid->grid(), std::move(cuts)));
}

// [begin, end) of each dimension, one after the other.
Sizes tile_bounds(const LayoutPtr& self, std::int64_t rank) {
  Sizes bounds;
  for (const auto& range : self->tiling().tile(rank).ranges) bounds.insert(bounds.end(), {range.begin, range.end});
  return bounds;
}

Edges parse_edges(const std::string& name) {
  if (name == "auto") return Edges::kAuto;
  if (name == "apart") return Edges::kApart;
  TORCH_CHECK_VALUE(name == "padded", "weft: edges are computed 'auto', 'apart' or 'padded', not '", name, "'");
  return Edges::kPadded;
}

Tiled conv(const Tensor& x, const LayoutPtr& layout, const Tensor& weight, const OptionalTensor& bias, Sizes stride,
           Sizes padding, Sizes padding_behind, Sizes dilation, std::int64_t groups, const std::string& border,
           const std::string& edges) {
  return unpacked(convolution({x, layout}, weight, bias,
                              {std::move(stride), std::move(padding), std::move(padding_behind), std::move(dilation),
                               groups, partition::parse_border(border), parse_edges(edges)}));
}

Tiled conv_transpose(const Tensor& x, const LayoutPtr& layout, const Tensor& weight, const OptionalTensor& bias,
                     Sizes stride, Sizes padding, Sizes output_padding, Sizes dilation, std::int64_t groups) {
  return unpacked(transposed_convolution(
      {x, layout}, weight, bias,
      {std::move(stride), std::move(padding), std::move(output_padding), std::move(dilation), groups}));
}

Tiled max_pool_op(const Tensor& x, const LayoutPtr& layout, Sizes kernel, Sizes stride, Sizes padding, Sizes dilation,
                  bool ceil_mode) {
  return unpacked(max_pool({x, layout}, {std::move(kernel), std::move(stride), std::move(padding), std::move(dilation),
                                         ceil_mode, true, std::nullopt}));
}

Tiled avg_pool_op(const Tensor& x, const LayoutPtr& layout, Sizes kernel, Sizes stride, Sizes padding, bool ceil_mode,
                  bool count_include_pad, std::optional<std::int64_t> divisor) {
  return unpacked(average_pool(
      {x, layout},
      {std::move(kernel), std::move(stride), std::move(padding), {1}, ceil_mode, count_include_pad, divisor}));
}

Tiled lp_pool_op(const Tensor& x, const LayoutPtr& layout, double p, Sizes kernel, Sizes stride, bool ceil_mode) {
  return unpacked(
      norm_pool({x, layout}, p, {std::move(kernel), std::move(stride), {0}, {1}, ceil_mode, true, std::nullopt}));
}

Tiled interpolate_op(const Tensor& x, const LayoutPtr& layout, const Sizes& size, const std::string& mode,
                     bool align_corners, const std::optional<std::vector<double>>& scales) {
  return unpacked(interpolate({x, layout}, size, parse_resampling(mode), align_corners, scales));
}

// Six numbers a dimension for each layer: kernel, stride, padding before and behind, dilation, ceil_mode.
RegionPtr region_of(const LayoutPtr& layout, const std::vector<Sizes>& layers) {
  std::vector<std::vector<partition::Window>> windows;
  for (const Sizes& numbers : layers) {
    TORCH_CHECK_VALUE(numbers.size() == 6 * layout->dims(), "weft: expected six numbers for each of ", layout->dims(),
                      " dimensions of a layer's windows, got ", numbers.size());
    auto& layer = windows.emplace_back();
    for (std::size_t i = 0; i < numbers.size(); i += 6) {
      layer.push_back(
          {numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3], numbers[i + 4], numbers[i + 5] != 0});
    }
  }
  return c10::make_intrusive<Region>(layout, windows);
}

void define_classes(torch::Library& m) {
  m.class_<RankGrid>("RankGrid")
      .def("rank", [](const RankGridPtr& self) { return self->rank(); })
      .def("size", [](const RankGridPtr& self) { return self->size(); })
      .def("extents", [](const RankGridPtr& self) { return self->grid().extents(); })
      .def("coordinates", [](const RankGridPtr& self) { return self->grid().coordinates(self->rank()); })
      .def("comm", [](const RankGridPtr& self) { return self->comm()->id(); });
  m.class_<Layout>("Layout")
      .def("grid", [](const LayoutPtr& self) { return self->grid(); })
      .def("shape", [](const LayoutPtr& self) { return self->shape(); })
      .def("parts", [](const LayoutPtr& self,
                       std::int64_t dim) { return self->tiling().cuts().at(static_cast<std::size_t>(dim)).sizes(); })
      .def("tile", &tile_bounds)
      .def("equals", [](const LayoutPtr& self, const LayoutPtr& other) {
        return self->comm() == other->comm() && self->tiling() == other->tiling();
      });
}

void define_regions(torch::Library& m) {
  m.class_<Region>("Region")
      .def("plan", [](const RegionPtr& self) { return self->plan(); })
      .def("outputs", [](const RegionPtr& self) { return self->outputs(); })
      .def("padding", [](const RegionPtr& self, std::int64_t i) { return self->padding(static_cast<std::size_t>(i)); })
      .def("native_padding",
           [](const RegionPtr& self, std::int64_t i) { return self->native_padding(static_cast<std::size_t>(i)); });
  m.def("halo_region", &region_of);
}

void define_tensors(torch::Library& m) {
  m.def("rank_grid", [](std::int64_t comm, Sizes extents) {
    return c10::make_intrusive<RankGrid>(mpi::Team::find(comm), std::move(extents));
  });
  m.def("balanced_layout", [](const RankGridPtr& grid, const Sizes& shape) { return Layout::balanced(grid, shape); });
  m.def("layout_of", &layout_of);
  m.def("tile_of", [](const Tensor& x, const LayoutPtr& layout) { return tile_of(x, layout).local; });
  m.def("tile_scatter", [](const std::optional<Tensor>& x, const LayoutPtr& layout, std::int64_t root) {
    return scatter(x, layout, root).local;
  });
  m.def("tile_all_gather", [](const Tensor& x, const LayoutPtr& layout) { return all_gather({x, layout}); });
  m.def("tile_gather",
        [](const Tensor& x, const LayoutPtr& layout, std::int64_t root) { return gather({x, layout}, root); });
  m.def("repartition", [](const Tensor& x, const LayoutPtr& layout, const LayoutPtr& to) {
    return repartition({x, layout}, to).local;
  });
  m.def("share",
        [](const std::vector<Tensor>& weights, std::int64_t comm) { return share(weights, mpi::Team::find(comm)); });
  m.def("retile", [](const Tensor& x, const LayoutPtr& layout) { return retile(x, layout).local; });
  m.def("counted_once", [](const Tensor& x, std::int64_t comm) { return counted_once(x, mpi::Team::find(comm)); });
}

void define_layers(torch::Library& m) {
  m.def("tile_conv", &conv);
  m.def("tile_conv_transpose", &conv_transpose);
  m.def("tile_max_pool", &max_pool_op);
  m.def("tile_avg_pool", &avg_pool_op);
  m.def("tile_lp_pool", &lp_pool_op);
  m.def("tile_adaptive_avg_pool", [](const Tensor& x, const LayoutPtr& layout, const Sizes& outputs) {
    return unpacked(adaptive_average_pool({x, layout}, outputs));
  });
  m.def("tile_adaptive_max_pool", [](const Tensor& x, const LayoutPtr& layout, const Sizes& outputs) {
    return unpacked(adaptive_max_pool({x, layout}, outputs));
  });
  m.def("tile_global_avg_pool",
        [](const Tensor& x, const LayoutPtr& layout) { return global_average_pool({x, layout}); });
  m.def("tile_global_max_pool", [](const Tensor& x, const LayoutPtr& layout) { return global_max_pool({x, layout}); });
  m.def("tile_interpolate", &interpolate_op);
  m.def("tile_contrast_norm", [](const Tensor& x, const LayoutPtr& layout, const Sizes& kernel) {
    return contrast_norm({x, layout}, kernel).local;
  });
  m.def("local_filter_outputs", &local_filter_outputs);
  m.def("tile_local_filter",
        [](const Tensor& x, const LayoutPtr& layout, const Tensor& weight, const Sizes& stride, const Sizes& padding) {
          return unpacked(local_filter({x, layout}, weight, stride, padding));
        });
  m.def("tile_local_defilter",
        [](const Tensor& y, const LayoutPtr& layout, const Tensor& weight, const LayoutPtr& inputs, const Sizes& stride,
           const Sizes& padding) { return local_defilter({y, layout}, weight, inputs, stride, padding).local; });
}

void define_norms_and_losses(torch::Library& m) {
  m.def("tile_batch_norm",
        [](const Tensor& x, const LayoutPtr& layout, const OptionalTensor& weight, const OptionalTensor& bias,
           const OptionalTensor& mean, const OptionalTensor& var, bool training, double average,
           double eps) { return batch_norm({x, layout}, weight, bias, mean, var, training, average, eps).local; });
  m.def("tile_group_norm", [](const Tensor& x, const LayoutPtr& layout, std::int64_t groups,
                              const OptionalTensor& weight, const OptionalTensor& bias,
                              double eps) { return group_norm({x, layout}, groups, weight, bias, eps).local; });
  m.def("tile_layer_norm",
        [](const Tensor& x, const LayoutPtr& layout, const Sizes& shape, const OptionalTensor& weight,
           const OptionalTensor& bias, double eps) { return layer_norm({x, layout}, shape, weight, bias, eps).local; });
  m.def("tile_dropout", [](const Tensor& x, const LayoutPtr& layout, double p, std::int64_t seed, bool channels) {
    return dropout(DistTensor{x, layout}, p, seed, channels).local;
  });
  m.def("seeded_dropout", [](const Tensor& x, double p, std::int64_t seed) { return dropout(x, p, seed); });
  m.def("tile_linear", [](const Tensor& x, const LayoutPtr& layout, const Tensor& weight, const OptionalTensor& bias) {
    return linear({x, layout}, weight, bias);
  });
  m.def("tile_sum", [](const Tensor& x, const LayoutPtr& layout) { return sum({x, layout}); });
  m.def("tile_mean", [](const Tensor& x, const LayoutPtr& layout) { return mean({x, layout}); });
  m.def("tile_cross_entropy",
        [](const Tensor& x, const LayoutPtr& layout, const Tensor& target, const OptionalTensor& weights, bool mean,
           std::int64_t ignore_index, double label_smoothing) {
          return cross_entropy({x, layout}, target, weights, mean, ignore_index, label_smoothing);
        });
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  define_classes(m);
  define_regions(m);
  define_tensors(m);
  define_layers(m);
  define_norms_and_losses(m);
}

}  // namespace
}  // namespace weft::spatial
