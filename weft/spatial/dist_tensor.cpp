#include "weft/spatial/dist_tensor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <numeric>

#include "weft/collective/autograd/call.h"
#include "weft/collective/broadcast.h"
#include "weft/collective/tensor.h"
#include "weft/spatial/dispatch.h"
#include "weft/spatial/exchange/cells.h"
#include "weft/spatial/exchange/exchange.h"
#include "weft/spatial/halo.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Border;
using partition::Box;

// First number in the key of a cached route.
enum class Purpose : std::int64_t { kRepartition = 1, kAllGather = 2, kGather = 3, kScatter = 4 };

HaloPlanPtr plan_between(const LayoutPtr& layout, Purpose purpose, Sizes key, const std::vector<Box>& owned,
                         const std::vector<Box>& needed) {
  key.insert(key.begin(), static_cast<std::int64_t>(purpose));
  const auto mine = layout->key();
  key.insert(key.end(), mine.begin(), mine.end());
  const auto make = [&] { return Route{plan_for(layout, owned, needed, Border::kZeros), layout->tiling()}; };
  return layout->grid()->route(key, make).plan;
}

// A layout with the whole field on `root`.
std::vector<Box> all_on(std::int64_t root, const LayoutPtr& layout) {
  collective::require_rank(root, layout->comm()->size(), "root");
  const Sizes nothing(layout->dims(), 0);
  std::vector<Box> boxes(static_cast<std::size_t>(layout->grid()->size()), Box::whole(nothing));
  boxes[static_cast<std::size_t>(root)] = Box::whole(layout->shape());
  return boxes;
}

// Returns [number of leading sizes, type, sizes...] of the root's tensor.
Tensor told_shape(const OptionalTensor& whole, const LayoutPtr& layout, std::int64_t root) {
  constexpr std::int64_t kRoom = 18;
  Tensor facts = at::empty({kRoom}, at::kLong).zero_();
  if (layout->comm()->rank() == root && whole && whole->defined()) {
    auto* fact = facts.mutable_data_ptr<std::int64_t>();
    fact[0] = whole->dim() - static_cast<std::int64_t>(layout->dims());
    fact[1] = static_cast<std::int64_t>(whole->scalar_type());
    for (std::int64_t i = 0; i < fact[0] && i + 2 < kRoom; ++i) fact[i + 2] = whole->size(i);
    const auto cells = whole->sizes().slice(static_cast<std::size_t>(std::max<std::int64_t>(fact[0], 0)));
    if (cells != at::IntArrayRef(layout->shape()) || fact[0] + 2 > kRoom) fact[0] = -1;
  } else {
    facts.fill_(-2);
  }
  return collective::broadcast(facts, layout->comm(), root);
}

Tensor held_whole(const OptionalTensor& whole, const LayoutPtr& layout, std::int64_t root) {
  const Tensor facts = told_shape(whole, layout, root);
  const auto* fact = facts.const_data_ptr<std::int64_t>();
  TORCH_CHECK_VALUE(fact[0] >= 0, "weft: scatter expects, on rank ", root, ", a tensor whose last sizes are ",
                    at::IntArrayRef(layout->shape()),
                    fact[0] == -2 ? "; that rank passed no tensor" : "; its tensor has other sizes");
  if (layout->comm()->rank() == root) return *whole;
  Sizes sizes(fact + 2, fact + 2 + fact[0]);
  sizes.resize(sizes.size() + layout->dims(), 0);
  return at::empty(sizes, static_cast<at::ScalarType>(fact[1]));
}

}  // namespace

LayoutPtr Layout::balanced(const RankGridPtr& grid, const Sizes& shape) {
  return c10::make_intrusive<Layout>(grid, partition::Tiling::balanced(grid->grid(), shape));
}

Sizes Layout::key() const {
  Sizes result;
  for (const auto& cuts : tiling_.cuts()) {
    const auto sizes = cuts.sizes();
    result.insert(result.end(), sizes.begin(), sizes.end());
  }
  return result;
}

Sizes Layout::local_sizes(at::IntArrayRef leading) const {
  Sizes sizes = leading.vec();
  for (const auto& range : tile().ranges) sizes.push_back(range.size());
  return sizes;
}

Sizes DistTensor::sizes() const {
  auto result = leading_sizes().vec();
  const auto shape = layout->shape();
  result.insert(result.end(), shape.begin(), shape.end());
  return result;
}

void DistTensor::validate() const {
  const auto tile = layout->tile().sizes();
  TORCH_CHECK_VALUE(local.defined() && leading() >= 0 &&
                        local.sizes().slice(static_cast<std::size_t>(leading())) == at::IntArrayRef(tile),
                    "weft: rank ", layout->comm()->rank(), " holds ", layout->tile().describe(), " of ",
                    at::IntArrayRef(layout->shape()), ", so its tensor must end in sizes ", at::IntArrayRef(tile),
                    "; got ", local.defined() ? local.sizes() : at::IntArrayRef());
}

void DistTensor::validate_channels(const char* what) const {
  validate();
  TORCH_CHECK_VALUE(leading() == 2, "weft: ", what, " of tiles in ", dims(),
                    " dimensions expects [batch, channels, ...], got a local tensor of sizes ", local.sizes());
}

Sizes dims_between(std::int64_t first, std::int64_t end) {
  Sizes result(static_cast<std::size_t>(std::max<std::int64_t>(end - first, 0)));
  std::iota(result.begin(), result.end(), first);
  return result;
}

DistTensor tile_of(const Tensor& whole, const LayoutPtr& layout) {
  const auto dims = static_cast<std::int64_t>(layout->dims());
  TORCH_CHECK_VALUE(whole.dim() >= dims && whole.sizes().slice(static_cast<std::size_t>(whole.dim() - dims)) ==
                                               at::IntArrayRef(layout->shape()),
                    "weft: expected a tensor whose last sizes are ", at::IntArrayRef(layout->shape()), ", got ",
                    whole.sizes());
  return {region(whole, layout->tile(), Box::whole(layout->shape())).contiguous(), layout};
}

DistTensor scatter(const OptionalTensor& whole, const LayoutPtr& layout, std::int64_t root) {
  const auto plan = plan_between(layout, Purpose::kScatter, {root}, all_on(root, layout), layout->tiling().tiles());
  return {halo_exchange(held_whole(whole, layout, root), plan), layout};
}

Tensor all_gather(const DistTensor& x) {
  const std::vector<Box> everything(static_cast<std::size_t>(x.layout->grid()->size()), Box::whole(x.layout->shape()));
  return halo_exchange(x.local,
                       plan_between(x.layout, Purpose::kAllGather, {}, x.layout->tiling().tiles(), everything));
}

Tensor gather(const DistTensor& x, std::int64_t root) {
  return halo_exchange(
      x.local, plan_between(x.layout, Purpose::kGather, {root}, x.layout->tiling().tiles(), all_on(root, x.layout)));
}

DistTensor repartition(const DistTensor& x, const LayoutPtr& layout) {
  TORCH_CHECK_VALUE(x.layout->shape() == layout->shape() && x.layout->comm() == layout->comm(),
                    "weft: repartition expects a layout of the shape ", at::IntArrayRef(x.layout->shape()),
                    " on the same ranks, got one of the shape ", at::IntArrayRef(layout->shape()));
  return {halo_exchange(x.local, plan_between(x.layout, Purpose::kRepartition, layout->key(),
                                              x.layout->tiling().tiles(), layout->tiling().tiles())),
          layout};
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.def("rank_grid", [](std::int64_t comm, Sizes extents) {
    return c10::make_intrusive<RankGrid>(Communicator::find(comm), std::move(extents));
  });
  m.def("balanced_layout", [](const RankGridPtr& grid, const Sizes& shape) { return Layout::balanced(grid, shape); });
  m.def("layout_of", [](const RankGridPtr& grid, const std::vector<Sizes>& sizes) {
    std::vector<partition::Cuts> cuts;
    for (const Sizes& parts : sizes) cuts.push_back(partition::Cuts::of_sizes(parts));
    return c10::make_intrusive<Layout>(grid, partition::Tiling(grid->grid(), std::move(cuts)));
  });
  m.def("tile_of", [](const Tensor& x, const LayoutPtr& layout) { return tile_of(x, layout).local; });
  m.def("tile_scatter", [](const OptionalTensor& x, const LayoutPtr& layout, std::int64_t root) {
    return scatter(x, layout, root).local;
  });
  m.def("tile_all_gather", &TileOperation<&all_gather>::call);
  m.def("tile_gather", &TileOperation<&gather>::call);
  m.def("repartition", &TileOperation<&repartition>::call);
}

}  // namespace weft::spatial
