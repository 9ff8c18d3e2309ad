#include "weft/layer_parallel/compose.h"

#include <ATen/ops/zeros.h>

namespace weft::layer_parallel {

at::Tensor zero_joined_to(const at::Tensor& zero, const at::Tensor& x) {
  return x.requires_grad() ? zero.add(x.flatten().slice(0, 0, 0).sum()) : zero;
}

at::Tensor scalar_zero() { return at::zeros({}); }

}  // namespace weft::layer_parallel
