#include "weft/spatial/exchange/exchange.h"

#include <ATen/ops/empty.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include "weft/collective/autograd/operator.h"
#include "weft/collective/tensor.h"
#include "weft/spatial/exchange/cells.h"
#include "weft/spatial/exchange/transfer.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using collective::GradientCall;
using collective::OperationNode;
using collective::variable_list;

const auto& exchange_handle() {
  static const auto op =
      collective::find_operator<Tensor(const Tensor&, const HaloPlanPtr&, double)>("weft::halo_exchange");
  return op;
}

const auto& accumulate_handle() {
  static const auto op = collective::find_operator<Tensor(const Tensor&, const HaloPlanPtr&)>("weft::halo_accumulate");
  return op;
}

Tensor communicate(const Tensor& x, const HaloPlanPtr& plan, double fill) {
  if (!plan->communicates()) {
    plan->require_box(x, plan->owned(), "a tile");
    return with_own_cells(x, *plan, fill);
  }
  const int tag = agree_on_exchange("halo_exchange", x, *plan, plan->owned());
  return collective::interruptible([&] {
    Transfer transfer = Transfer::of_cells(x, *plan, collective::current_direction(), tag);
    const Tensor padded = with_own_cells(x, *plan, fill);
    transfer.finish_cells(*plan, [&](const partition::Piece& piece, const Tensor& cells) {
      region(padded, piece.target, plan->needed()).copy_(cells);
    });
    return padded;
  });
}

Tensor communicate_back(const Tensor& g, const HaloPlanPtr& plan) {
  if (!plan->communicates()) {
    plan->require_box(g, plan->needed(), "a needed box");
    return with_own_gradients(g, *plan);
  }
  const int tag = agree_on_exchange("halo_accumulate", g, *plan, plan->needed());
  return collective::interruptible([&] {
    const auto gradient_of = [&](const partition::Piece& piece) { return region(g, piece.target, plan->needed()); };
    Transfer transfer = Transfer::of_gradients(g, *plan, gradient_of, collective::current_direction(), tag);
    const Tensor tile = with_own_gradients(g, *plan);
    transfer.finish_gradients(tile, *plan);
    return tile;
  });
}

struct ExchangeAdjoint {
  HaloPlanPtr plan;
  variable_list operator()(OperationNode& /*node*/, variable_list&& g) const {
    return {accumulate_handle().call(g[0], plan)};
  }
};

struct AccumulateAdjoint {
  HaloPlanPtr plan;
  variable_list operator()(OperationNode& /*node*/, variable_list&& g) const {
    return {exchange_handle().call(g[0], plan, 0)};
  }
};

Tensor differentiate(const Tensor& x, const HaloPlanPtr& plan, double fill) {
  const GradientCall call(x);
  const Tensor y = collective::below_autograd(exchange_handle(), x, plan, fill);
  if (call.recording())
    collective::record("halo_exchange", plan->comm(), {x}, {y}, ExchangeAdjoint{plan}, call.on_tape());
  if (call.has_tangent()) collective::set_tangent(y, exchange_handle().call(collective::tangent_of(x), plan, 0));
  return y;
}

Tensor differentiate_back(const Tensor& g, const HaloPlanPtr& plan) {
  const GradientCall call(g);
  const Tensor y = collective::below_autograd(accumulate_handle(), g, plan);
  if (call.recording())
    collective::record("halo_accumulate", plan->comm(), {g}, {y}, AccumulateAdjoint{plan}, call.on_tape());
  if (call.has_tangent()) collective::set_tangent(y, accumulate_handle().call(collective::tangent_of(g), plan));
  return y;
}

Tensor shape_only(const Tensor& x, const HaloPlanPtr& plan, double /*fill*/) {
  return at::empty(plan->sizes(x, plan->needed()), x.options());
}

Tensor shape_only_back(const Tensor& g, const HaloPlanPtr& plan) {
  return at::empty(plan->sizes(g, plan->owned()), g.options());
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  register_halo_plan();
  m.def("halo_exchange(Tensor x, __torch__.torch.classes.weft.HaloPlan plan, float fill) -> Tensor");
  m.def("halo_accumulate(Tensor g, __torch__.torch.classes.weft.HaloPlan plan) -> Tensor");
}
TORCH_LIBRARY_IMPL(weft, CompositeExplicitAutograd, m) {
  m.impl("halo_exchange", &communicate);
  m.impl("halo_accumulate", &communicate_back);
}
TORCH_LIBRARY_IMPL(weft, Autograd, m) {
  m.impl("halo_exchange", &differentiate);
  m.impl("halo_accumulate", &differentiate_back);
}
TORCH_LIBRARY_IMPL(weft, Meta, m) {
  m.impl("halo_exchange", &shape_only);
  m.impl("halo_accumulate", &shape_only_back);
}

Tensor cropped(Tensor x, const HaloPlan& plan) {
  plan.require_box(x, plan.owned(), "a tile");
  const std::int64_t leading = x.dim() - static_cast<std::int64_t>(plan.dims());
  for (std::size_t i = 0; i < plan.dims(); ++i) {
    const auto needed = plan.needed().ranges[i];
    const auto owned = plan.owned().ranges[i];
    if (needed.size() == owned.size()) continue;
    x = x.narrow(leading + static_cast<std::int64_t>(i), needed.empty() ? 0 : needed.begin - owned.begin,
                 needed.size());
  }
  return x;
}

}  // namespace

Tensor halo_exchange(const Tensor& x, const HaloPlanPtr& plan, double fill, std::source_location where) {
  if (plan->only_crops()) return cropped(x, *plan);
  const mpi::OperationScope scope("halo_exchange", plan->comm().get(), where);
  return exchange_handle().call(x, plan, fill);
}

Tensor halo_accumulate(const Tensor& g, const HaloPlanPtr& plan, std::source_location where) {
  const mpi::OperationScope scope("halo_accumulate", plan->comm().get(), where);
  return accumulate_handle().call(g, plan);
}

int agree_on_exchange(const char* name, const Tensor& x, const HaloPlan& plan, const partition::Box& box) {
  collective::CollectiveCall call(name, plan.comm()->id());
  call.check([&] {
    collective::require_communicable(x);
    plan.require_box(x, box, "a tile");
  });
  collective::Signature signature(name);
  const std::int64_t leading = x.dim() - static_cast<std::int64_t>(plan.dims());
  signature.add(static_cast<std::int64_t>(x.scalar_type())).add(plan.signature());
  for (std::int64_t i = 0; i < leading; ++i) signature.add(x.size(i));
  const auto outcome = call.agree(signature, plan.epoch().propose(), [&] {
    std::ostringstream text;
    text << name << "(" << collective::describe(x) << " of " << at::IntArrayRef(plan.geometry().shape) << ")";
    return text.str();
  });
  plan.epoch().adopt(outcome.value_max);
  return plan.comm()->transfer_tag(outcome.value_max);
}

}  // namespace weft::spatial
