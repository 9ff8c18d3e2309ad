#include "weft/spatial/dispatch.h"

#include <torch/custom_class.h>

#include "weft/spatial/exchange/halo_plan.h"

namespace weft::spatial {
namespace {

// Returns the start and the end of the tile in each dimension, as one list.
std::vector<std::int64_t> tile_bounds(const LayoutPtr& self, std::int64_t rank) {
  std::vector<std::int64_t> bounds;
  for (const auto& range : self->tiling().tile(rank).ranges) bounds.insert(bounds.end(), {range.begin, range.end});
  return bounds;
}

}  // namespace

void register_classes() {
  static const auto rank_grid =
      torch::class_<RankGrid>("weft", "RankGrid")
          .def("rank", [](const RankGridPtr& self) { return self->rank(); })
          .def("size", [](const RankGridPtr& self) { return self->size(); })
          .def("extents", [](const RankGridPtr& self) { return self->grid().extents(); })
          .def("coordinates", [](const RankGridPtr& self) { return self->grid().coordinates(self->rank()); })
          .def("comm", [](const RankGridPtr& self) { return self->comm()->id(); });
  static const auto layout = torch::class_<Layout>("weft", "Layout")
                                 .def("grid", [](const LayoutPtr& self) { return self->grid(); })
                                 .def("shape", [](const LayoutPtr& self) { return self->shape(); })
                                 .def("parts",
                                      [](const LayoutPtr& self, std::int64_t dim) {
                                        return self->tiling().cuts().at(static_cast<std::size_t>(dim)).sizes();
                                      })
                                 .def("tile", &tile_bounds)
                                 .def("equals", [](const LayoutPtr& self, const LayoutPtr& other) {
                                   return self->comm() == other->comm() && self->tiling() == other->tiling();
                                 });
  register_halo_plan();
}

}  // namespace weft::spatial
