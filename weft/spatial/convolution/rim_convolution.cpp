#include "weft/spatial/convolution/rim_convolution.h"

#include <ATen/ops/zeros.h>

#include "weft/spatial/exchange/cells.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Box;
using partition::Piece;

Tensor taps_of(const Tensor& weight, const Rim::Part& part) {
  return weight.narrow(static_cast<std::int64_t>(part.dim) + 2, part.taps.begin, part.taps.size());
}

// Returns the kernel for a part of the rim, without the bias, which the tile has added.
Kernel cropped(const Kernel& kernel, const Rim::Part& part) {
  Kernel result = kernel.padded_by(part.padding);
  result.weight = taps_of(kernel.weight, part);
  result.bias.reset();
  return result;
}

}  // namespace

bool is_halo(const Piece& piece) { return !piece.plain() || piece.source != piece.target; }

RimInputs::RimInputs(const Tensor& x, const HaloPlan& plan, const Rim& rim)
    : x_(x), plan_(plan), rim_(rim), buffers_(rim.parts.size()) {
  for (const Piece& piece : plan.list().own) {
    if (is_halo(piece)) place(piece, unfolded(region(x, piece.source, plan.owned()), piece));
  }
}

const Tensor& RimInputs::buffer(std::size_t i) {
  if (!buffers_[i].defined()) buffers_[i] = fresh(plan_.sizes(x_, rim_.parts[i].inputs), x_).zero_();
  return buffers_[i];
}

void RimInputs::place(const Piece& piece, const Tensor& cells) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const Rim::Part& part = rim_.parts[i];
    const Box shared = piece.target.intersect(part.halo);
    if (shared.empty()) continue;
    if (shared == part.inputs && shared == piece.target && cells.is_contiguous()) {
      buffers_[i] = cells.to(x_.device());
    } else {
      region(buffer(i), shared, part.inputs).copy_(region(cells, shared, piece.target));
    }
  }
}

void RimInputs::add_to(const Tensor& y, const Box& tile, const Kernel& kernel) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const Rim::Part& part = rim_.parts[i];
    region(y, part.outputs, tile).add_(cropped(kernel, part).apply(buffer(i)));
  }
}

RimGradients::RimGradients(const Tensor& g, const std::vector<Tensor>& halos, const Rim& rim, const Box& tile,
                           const Kernel& kernel, bool of_halo)
    : halos_(halos), rim_(rim) {
  if (g.numel() == 0) return;
  for (std::size_t i = 0; i < halos.size(); ++i) {
    kernels_.push_back(cropped(kernel, rim.parts[i]));
    outputs_.push_back(region(g, rim.parts[i].outputs, tile).contiguous());
    if (of_halo) inputs_.push_back(std::get<0>(kernels_[i].backward(outputs_[i], halos[i], {true, false, false})));
  }
}

Tensor RimGradients::of(const Piece& piece, const HaloPlan& plan, const Tensor& like) const {
  Tensor all;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Rim::Part& part = rim_.parts[i];
    const Box shared = piece.target.intersect(part.halo);
    if (shared.empty()) continue;
    const Tensor mine = region(inputs_[i], shared, part.inputs);
    if (shared == piece.target) return mine;
    if (!all.defined()) all = at::zeros(plan.sizes(like, piece.target), like.options());
    region(all, shared, piece.target).copy_(mine);
  }
  return all.defined() ? all : at::zeros(plan.sizes(like, piece.target), like.options());
}

void RimGradients::add_to_weight(const Tensor& dw) const {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    taps_of(dw, rim_.parts[i]).add_(std::get<1>(kernels_[i].backward(outputs_[i], halos_[i], {false, true, false})));
  }
}

}  // namespace weft::spatial
