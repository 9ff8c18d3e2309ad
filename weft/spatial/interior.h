// A convolution in parts: outputs that need no halo while the halo travels, those at the borders afterwards.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "weft/partition/box.h"
#include "weft/partition/window.h"
#include "weft/spatial/convolution_node.h"
#include "weft/spatial/halo.h"

namespace weft::spatial {

class InteriorFirst {
 public:
  InteriorFirst(const DistTensor& x, const Halo& halo, const std::vector<partition::Window>& windows, Kernel kernel);

  // Whether this rank has any outputs. Ranks may differ in it: only when they compute differs, not what.
  [[nodiscard]] static bool possible(const DistTensor& x, const Halo& halo,
                                     const std::vector<partition::Window>& windows);

  void compute_interior();
  // The whole tile, with the borders out of the padded one.
  [[nodiscard]] at::Tensor compute_borders(const at::Tensor& padded);

 private:
  [[nodiscard]] at::Tensor convolved(const at::Tensor& from, const partition::Box& origin,
                                     const partition::Box& outputs) const;
  void put(const partition::Box& outputs, const at::Tensor& values);
  [[nodiscard]] bool native(std::size_t dim) const;

  const DistTensor& x_;
  const Halo& halo_;
  const std::vector<partition::Window>& windows_;
  Kernel kernel_;
  partition::Box tile_;      // of outputs
  partition::Box interior_;  // those that the rank's own inputs suffice for
  at::Tensor result_;
};

}  // namespace weft::spatial
