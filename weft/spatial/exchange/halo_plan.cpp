#include "weft/spatial/exchange/halo_plan.h"

#include <torch/custom_class.h>

#include <c10/util/Exception.h>

#include "weft/collective/autograd/call.h"

namespace weft::spatial {
namespace {

using partition::Border;
using partition::Box;

std::int64_t signature_of(const partition::Geometry& geometry) {
  collective::Signature signature("halo");
  signature.add(at::IntArrayRef(geometry.shape));
  for (const Border border : geometry.borders) signature.add(static_cast<std::int64_t>(border));
  for (const auto* boxes : {&geometry.owned, &geometry.needed}) {
    for (const Box& box : *boxes) {
      for (const auto& range : box.ranges) signature.add(range.begin).add(range.end);
    }
  }
  return static_cast<std::int64_t>(signature.value());
}

// Borders other than zeros leave no cells to fill.
Box covered_by(const partition::Geometry& geometry, const Box& needed) {
  Box result = needed;
  for (std::size_t i = 0; i < needed.dims(); ++i) {
    if (geometry.borders[i] != Border::kZeros) continue;
    result.ranges[i] = needed.ranges[i].intersect({0, geometry.shape[i]});
  }
  return result;
}

}  // namespace

HaloPlan::HaloPlan(CommunicatorPtr comm, std::shared_ptr<Epoch> epoch, partition::Geometry geometry)
    : comm_(std::move(comm)),
      epoch_(std::move(epoch)),
      geometry_(std::move(geometry)),
      me_(static_cast<std::size_t>(comm_->rank())),
      list_(partition::exchange_list(geometry_, comm_->rank())),
      covered_(covered_by(geometry_, geometry_.needed[me_])),
      communicates_(partition::communicates(geometry_)),
      only_crops_(partition::only_crops(geometry_)),
      signature_(signature_of(geometry_)) {}

Sizes HaloPlan::sizes(const at::Tensor& like, const Box& box) const {
  auto result = like.sizes().vec();
  const std::size_t leading = result.size() - dims();
  for (std::size_t i = 0; i < dims(); ++i) result[leading + i] = box.ranges[i].size();
  return result;
}

void HaloPlan::require_box(const at::Tensor& x, const Box& box, const char* what) const {
  TORCH_CHECK(x.dim() >= static_cast<std::int64_t>(dims()), "weft: expected a tile of at least ", dims(),
              " dimensions, got ", x.sizes());
  TORCH_CHECK(x.sizes().vec() == sizes(x, box), "weft: rank ", comm_->rank(), " expects ", what, " of ",
              at::IntArrayRef(box.sizes()), " cells (", box.describe(), " of ", at::IntArrayRef(geometry_.shape),
              "), got a tensor of ", x.sizes());
}

void register_halo_plan() {
  static const auto registered =
      torch::class_<HaloPlan>("weft", "HaloPlan")
          .def("communicates", [](const HaloPlanPtr& self) { return self->communicates(); })
          .def("dims", [](const HaloPlanPtr& self) { return static_cast<std::int64_t>(self->dims()); })
          .def("cells_received", [](const HaloPlanPtr& self) { return self->list().cells_received(); });
}

}  // namespace weft::spatial
