#include "weft/spatial/linear.h"

#include <ATen/ops/linear.h>
#include <c10/util/Exception.h>

#include "weft/collective/all_reduce.h"
#include "weft/spatial/dispatch.h"
#include "weft/spatial/share.h"

namespace weft::spatial {

at::Tensor linear(const DistTensor& x, const at::Tensor& weight, const OptionalTensor& bias) {
  x.validate();
  TORCH_CHECK_VALUE(
      x.local.dim() >= 2 && weight.dim() == x.local.dim() && weight.sizes().slice(1) == x.local.sizes().slice(1),
      "weft: expected, on rank ", x.layout->comm()->rank(), ", weights [outputs, ", x.local.sizes().slice(1),
      "] for its tile, got ", weight.sizes());
  const at::Tensor part = at::linear(x.local.flatten(1), matching(weight, x.local).flatten(1));
  const at::Tensor y = counted_once(collective::all_reduce(part, x.layout->comm()), x.layout->comm());
  return bias && bias->defined() ? y.add(matching(*bias, y)) : y;
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.def("tile_linear", &TileOperation<&linear>::call);
}

}  // namespace weft::spatial
