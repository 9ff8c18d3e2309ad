#include "weft/spatial/share.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>

#include "weft/collective/all_reduce.h"
#include "weft/collective/autograd/call.h"
#include "weft/collective/autograd/node.h"
#include "weft/collective/tensor.h"
#include "weft/spatial/dispatch.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using collective::OperationNode;
using collective::variable_list;

struct ShareAdjoint {
  variable_list operator()(OperationNode& node, variable_list&& g) const {
    std::vector<Tensor> flat;
    for (const Tensor& gradient : g) flat.push_back(gradient.reshape({-1}));
    const Tensor sum = collective::all_reduce(at::cat(flat), node.communicator());
    std::int64_t first = 0;
    for (Tensor& gradient : g) {
      const Tensor piece = sum.narrow(0, first, gradient.numel());
      first += gradient.numel();
      gradient = piece.view(gradient.sizes());
    }
    return std::move(g);
  }
};

// Returns a weight that requires a gradient, if there is one; it represents all of them.
Tensor representative(const std::vector<Tensor>& weights) {
  const auto wanted = std::find_if(weights.begin(), weights.end(), [](const Tensor& w) { return w.requires_grad(); });
  return wanted == weights.end() ? weights.front() : *wanted;
}

void agree(const std::vector<Tensor>& weights, const CommunicatorPtr& comm) {
  collective::CollectiveCall call("share", comm->id());
  call.check([&] {
    for (const Tensor& weight : weights) {
      collective::require_communicable(weight);
      TORCH_CHECK(weight.scalar_type() == weights[0].scalar_type(), "weft: expected weights of one type, got ",
                  weights[0].scalar_type(), " and ", weight.scalar_type());
    }
  });
  collective::Signature signature("share");
  for (const Tensor& weight : weights) signature.add(weight);
  call.agree(signature, 0, [&] {
    std::string text = "share(";
    for (const Tensor& weight : weights) text += collective::describe(weight) + " ";
    return text + ")";
  });
}

struct RetileAdjoint {
  LayoutPtr layout;
  variable_list operator()(OperationNode& /*node*/, variable_list&& g) const { return {all_gather({g[0], layout})}; }
};

struct CountedOnce final : torch::autograd::Node {
  double factor = 1;
  variable_list apply(variable_list&& g) override { return {g[0].defined() ? g[0].mul(factor) : g[0]}; }
  [[nodiscard]] std::string name() const override { return "weft::CountedOnceBackward"; }
};

}  // namespace

std::vector<Tensor> share(const std::vector<Tensor>& weights, const CommunicatorPtr& comm, std::source_location where) {
  if (weights.empty() || comm->size() == 1 || weights.front().is_meta()) return weights;
  const mpi::OperationScope scope("share", comm.get(), where);
  collective::GradientCall call(representative(weights));
  agree(weights, comm);
  if (!call.recording()) return weights;
  std::vector<Tensor> shared;
  for (const Tensor& weight : weights) shared.push_back(weight.detach());
  collective::record("share", comm, weights, shared, ShareAdjoint{}, call.on_tape());
  return shared;
}

Tensor matching(const Tensor& weight, const Tensor& x) {
  return x.is_meta() ? at::empty_like(weight.detach(), weight.options().device(at::kMeta)) : weight;
}

Affine share(const OptionalTensor& weight, const OptionalTensor& bias, const DistTensor& x) {
  std::vector<Tensor> given;
  for (const OptionalTensor* tensor : {&weight, &bias}) {
    if (*tensor && (*tensor)->defined()) given.push_back(matching(**tensor, x.local));
  }
  const auto shared = share(given, x.layout->comm());
  Affine result;
  if (weight && weight->defined()) result.weight = shared.front();
  if (bias && bias->defined()) result.bias = shared.back();
  return result;
}

Tensor counted_once(const Tensor& x, const CommunicatorPtr& comm) {
  if (comm->size() == 1 || !x.requires_grad() || !c10::GradMode::is_enabled()) return x;
  auto node = c10::make_intrusive<CountedOnce>();
  node->factor = 1.0 / comm->size();
  node->set_next_edges({torch::autograd::impl::gradient_edge(x)});
  Tensor y = x.detach();
  torch::autograd::set_history(y, node);
  return y;
}

DistTensor retile(const Tensor& whole, const LayoutPtr& layout, std::source_location where) {
  const CommunicatorPtr& comm = layout->comm();
  if (comm->size() == 1 || whole.is_meta()) return tile_of(whole, layout);
  const mpi::OperationScope scope("retile", comm.get(), where);
  collective::GradientCall call(whole);
  {
    collective::CollectiveCall agreement("retile", comm->id());
    agreement.check([&] { static_cast<void>(tile_of(whole.detach(), layout)); });
    agreement.agree(collective::Signature("retile").add(whole), 0,
                    [&] { return "retile(" + collective::describe(whole) + ")"; });
  }
  const Tensor tile = tile_of(whole.detach(), layout).local.clone();
  if (call.recording()) collective::record("retile", comm, {whole}, {tile}, RetileAdjoint{layout}, call.on_tape());
  return {tile, layout};
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_classes();
  m.def("share",
        [](const std::vector<Tensor>& weights, std::int64_t comm) { return share(weights, Communicator::find(comm)); });
  m.def("retile", [](const Tensor& x, const LayoutPtr& layout) { return retile(x, layout).local; });
  m.def("counted_once", [](const Tensor& x, std::int64_t comm) { return counted_once(x, Communicator::find(comm)); });
}

}  // namespace weft::spatial
