#include "weft/spatial/convolution/tile_convolution.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "weft/collective/autograd/call.h"
#include "weft/collective/autograd/node.h"
#include "weft/spatial/convolution/rim_convolution.h"
#include "weft/spatial/exchange/cells.h"
#include "weft/spatial/exchange/exchange.h"
#include "weft/spatial/exchange/transfer.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using collective::OperationNode;
using collective::variable_list;
using partition::Box;
using partition::Piece;
using torch::autograd::SavedVariable;

// State that a tile's convolution saves for backward.
struct Saved {
  HaloPlanPtr plan;
  LayoutPtr outputs;
  std::shared_ptr<const Rim> rim;
  Kernel kernel;              // the kernel without its tensors
  std::vector<Tensor> halos;  // the inputs of the rim's parts
  bool has_bias = false;
  bool exchanges = false;  // some rank needs the gradient of its tile
};

struct Wanted {
  bool x, weight, bias;
};

// Returns the gradients through recorded operations, for higher derivatives.
variable_list recorded_gradients(const Tensor& g, const Tensor& x, const Saved& saved, const Kernel& kernel,
                                 const Wanted& wanted) {
  const Tensor padded = halo_exchange(x, saved.plan);
  if (g.numel() == 0) {
    const Tensor dx = halo_accumulate(at::zeros_like(padded), saved.plan);
    return {dx, at::zeros_like(kernel.weight), at::zeros({kernel.weight.size(0)}, g.options())};
  }
  const auto [dp, dw, db] = kernel.backward(g, padded, {true, wanted.weight, wanted.bias});
  return {halo_accumulate(dp, saved.plan), dw, db};
}

class TileAdjoint {
 public:
  explicit TileAdjoint(Saved saved) : saved_(std::move(saved)) {}

  void save(const Tensor& x, const Tensor& weight) {
    x_ = SavedVariable(x, /*is_output=*/false);
    weight_ = SavedVariable(weight, /*is_output=*/false);
  }

  void release() {
    x_.reset_data();
    weight_.reset_data();
    saved_.halos.clear();
  }

  variable_list operator()(OperationNode& node, variable_list&& gradients) {
    const Tensor x = x_.unpack();
    Kernel kernel = saved_.kernel;
    kernel.weight = weight_.unpack();
    const Wanted wanted{saved_.exchanges && node.task_should_compute_output(0), node.task_should_compute_output(1),
                        saved_.has_bias && node.task_should_compute_output(2)};
    // Without an exchange, torch's own operations are recorded as well.
    if (c10::GradMode::is_enabled() && saved_.exchanges) {
      return recorded_gradients(gradients[0], x, saved_, kernel, wanted);
    }
    return plain_gradients(gradients[0].contiguous(), x, kernel, wanted);
  }

 private:
  variable_list plain_gradients(const Tensor& g, const Tensor& x, const Kernel& kernel, const Wanted& wanted) const {
    const RimGradients edges(g, saved_.halos, *saved_.rim, saved_.outputs->tile(), kernel, saved_.exchanges);
    std::optional<Transfer> transfer;
    if (saved_.exchanges) transfer = sent(edges, x);
    auto [dx, dw, db] = tile_gradients(g, x, kernel, wanted);
    if (wanted.weight) edges.add_to_weight(dw);
    if (transfer)
      collective::interruptible([&] { transfer->finish_gradients(with_own_halo(dx, edges), *saved_.plan); });
    return {dx, dw, db};
  }

  [[nodiscard]] Transfer sent(const RimGradients& edges, const Tensor& x) const {
    const int tag = agree_on_exchange("tile_convolution", x, *saved_.plan, saved_.plan->owned());
    return Transfer::of_gradients(
        x, *saved_.plan, [&](const Piece& piece) { return edges.of(piece, *saved_.plan, x); },
        collective::current_direction(), tag);
  }

  static std::tuple<Tensor, Tensor, Tensor> empty_gradients(const Tensor& g, const Tensor& x, const Kernel& kernel) {
    return {at::zeros_like(x), at::zeros_like(kernel.weight), at::zeros({kernel.weight.size(0)}, g.options())};
  }
  // Returns the gradients of the convolution of the tile alone, with zeros around it.
  [[nodiscard]] std::tuple<Tensor, Tensor, Tensor> tile_gradients(const Tensor& g, const Tensor& x,
                                                                  const Kernel& kernel, const Wanted& wanted) const {
    if (g.numel() == 0) return empty_gradients(g, x, kernel);
    const Kernel alone = kernel.padded_by(saved_.rim->padding);
    return alone.backward(g, x, {saved_.exchanges, wanted.weight, wanted.bias});
  }

  [[nodiscard]] const Tensor& with_own_halo(const Tensor& dx, const RimGradients& edges) const {
    for (const Piece& piece : saved_.plan->list().own) {
      if (is_halo(piece))
        region(dx, piece.source, saved_.plan->owned()).add_(folded(edges.of(piece, *saved_.plan, dx), piece));
    }
    return dx;
  }

  Saved saved_;
  SavedVariable x_;
  SavedVariable weight_;
};

bool has_tangent(const OptionalTensor& x) { return x && torch::autograd::isFwGradDefined(*x); }

Tensor alone(const DistTensor& x, const Halo& halo, const Kernel& kernel) {
  if (!halo.outputs->tile().empty() && x.local.size(0) > 0) return kernel.padded_by(halo.rim->padding).apply(x.local);
  return at::zeros(halo.outputs->local_sizes({x.local.size(0), kernel.weight.size(0)}), x.local.options());
}

}  // namespace

OptionalTensor tile_convolution(const DistTensor& x, const Halo& halo, const Kernel& kernel) {
  const HaloPlan& plan = *halo.plan;
  const mpi::OperationScope scope("tile_convolution", plan.comm().get(), std::source_location::current());
  const collective::GradientCall call(x.local);
  const int tag = agree_on_exchange("tile_convolution", x.local, plan, plan.owned());
  if (call.has_tangent() || has_tangent(kernel.weight) || has_tangent(kernel.bias)) return std::nullopt;
  const bool weights = kernel.weight.requires_grad() || (kernel.bias && kernel.bias->requires_grad());
  const bool recording = c10::GradMode::is_enabled() && (call.recording() || weights);
  Saved saved{halo.plan, halo.outputs, halo.rim, kernel, {}, kernel.bias && kernel.bias->defined(), call.recording()};
  Tensor y;
  collective::interruptible([&] {
    const at::NoGradGuard no_grad;
    Transfer transfer = Transfer::of_cells(x.local, plan, collective::current_direction(), tag);
    y = alone(x, halo, kernel);
    RimInputs edges(x.local, plan, *halo.rim);
    transfer.finish_cells(plan, [&](const Piece& piece, const Tensor& cells) { edges.place(piece, cells); });
    if (y.numel() > 0) edges.add_to(y, halo.outputs->tile(), kernel);
    if (recording) saved.halos = std::move(edges).take();
  });
  if (!recording) return y;
  saved.kernel.weight.reset();
  saved.kernel.bias.reset();
  const bool exchanges = saved.exchanges;
  auto node =
      collective::record("tile_convolution", plan.comm(), {x.local, kernel.weight, kernel.bias.value_or(Tensor())}, {y},
                         TileAdjoint(std::move(saved)), exchanges && call.on_tape());
  node->adjoint_.save(x.local, kernel.weight);
  return y;
}

}  // namespace weft::spatial
