#include "weft/spatial/exchange.h"

#include <ATen/ops/empty.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include "weft/collective/sizes.h"
#include "weft/collective/tensor.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using collective::GradientCall;
using collective::Negotiation;
using collective::OperationNode;
using collective::Signature;
using collective::variable_list;

constexpr std::int64_t kNewTag = -1;

const auto& exchange_handle() {
  static const auto op =
      collective::find_operator<Tensor(const Tensor&, const HaloPlanPtr&, double, std::int64_t)>("weft::halo_exchange");
  return op;
}

const auto& accumulate_handle() {
  static const auto op =
      collective::find_operator<Tensor(const Tensor&, const HaloPlanPtr&, std::int64_t)>("weft::halo_accumulate");
  return op;
}

thread_local const std::function<void()>* t_work = nullptr;
thread_local EarlyReply* t_early = nullptr;

// Sets a thread's variable while it lives.
template <class Value>
class Setting {
 public:
  Setting(Value& variable, Value value) : variable_(variable), before_(std::exchange(variable, value)) {}
  ~Setting() { variable_ = before_; }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  Value& variable_;
  Value before_;
};

void work_meanwhile() {
  if (const auto* work = std::exchange(t_work, nullptr)) (*work)();
}

// The ranks agree on the call, and on the tag of its messages. A number for each exchange, because an adjoint may leave
// before those of later exchanges have arrived; the largest of the ranks' numbers, because a rank that failed may have
// missed some.
int agree(const char* name, const Tensor& x, const HaloPlan& plan, const partition::Box& box, std::int64_t tag) {
  Negotiation talk(name, plan.comm()->id());
  talk.check([&] {
    collective::require_communicable(x);
    plan.require_box(x, box, "a tile");
  });
  Signature signature(name);
  const std::int64_t leading = x.dim() - static_cast<std::int64_t>(plan.dims());
  signature.add(static_cast<std::int64_t>(x.scalar_type())).add(plan.signature()).add(tag);
  for (std::int64_t i = 0; i < leading; ++i) signature.add(x.size(i));
  const std::int64_t mine = tag == kNewTag ? plan.comm()->next_transfer() : tag;
  const auto outcome = talk.agree(signature, mine, [&] {
    std::ostringstream text;
    text << name << "(" << collective::describe(x) << " of " << at::IntArrayRef(plan.geometry().shape) << ")";
    return text.str();
  });
  collective::tell_gradient_call({outcome.value_max});
  return plan.comm()->transfer_tag(outcome.value_max);
}

Tensor communicate(const Tensor& x, const HaloPlanPtr& plan, double fill, std::int64_t tag) {
  if (!plan->communicates()) {
    plan->require_box(x, plan->owned(), "a tile");
    work_meanwhile();
    return with_own_cells(x, *plan, fill);
  }
  const int agreed = agree("halo_exchange", x, *plan, plan->owned(), tag);
  return collective::interruptible([&] {
    Transfer transfer = Transfer::of_cells(x, *plan, collective::current_direction(), agreed);
    Tensor padded = with_own_cells(x, *plan, fill);
    work_meanwhile();
    transfer.finish_cells(padded, *plan);
    return padded;
  });
}

Tensor communicate_back(const Tensor& g, const HaloPlanPtr& plan, std::int64_t tag) {
  if (!plan->communicates()) {
    plan->require_box(g, plan->needed(), "a needed box");
    return with_own_gradients(g, *plan);
  }
  const int agreed = agree("halo_accumulate", g, *plan, plan->needed(), tag);
  return collective::interruptible([&] {
    std::optional<Transfer> transfer;
    if (EarlyReply* early = std::exchange(t_early, nullptr)) transfer = early->take(g);
    // A gradient that left early was made for this exchange alone, so that its memory can become the result's.
    const bool ours = transfer.has_value();
    if (!transfer) transfer = Transfer::of_gradients(g, *plan, collective::current_direction(), agreed);
    Tensor tile = with_own_gradients(g, *plan, ours);
    transfer->finish_gradients(tile, *plan);
    return tile;
  });
}

struct ExchangeAdjoint {
  std::shared_ptr<EarlyReply> early;
  HaloPlanPtr plan;
  std::int64_t tag;
  variable_list operator()(OperationNode& /*node*/, variable_list&& g) const {
    const Setting<EarlyReply*> setting(t_early, early.get());
    return {accumulate_handle().call(g[0], plan, tag)};
  }
};

struct AccumulateAdjoint {
  HaloPlanPtr plan;
  std::int64_t tag;
  variable_list operator()(OperationNode& /*node*/, variable_list&& g) const {
    return {exchange_handle().call(g[0], plan, 0, tag)};
  }
};

std::int64_t tag_of(const GradientCall& call) { return call.sizes ? call.sizes->front() : kNewTag; }

Tensor differentiate(const Tensor& x, const HaloPlanPtr& plan, double fill, std::int64_t tag) {
  const GradientCall call(x);
  const Tensor y = collective::below_autograd(exchange_handle(), x, plan, fill, tag);
  if (call.recording()) {
    auto early = std::make_shared<EarlyReply>();
    early->plan = plan;
    early->tag = call.sizes ? plan->comm()->transfer_tag(tag_of(call)) : 0;
    collective::record("halo_exchange", plan->comm(), {x}, {y}, ExchangeAdjoint{early, plan, tag_of(call)},
                       call.on_tape());
  }
  if (call.has_tangent()) {
    collective::set_tangent(y, exchange_handle().call(collective::tangent_of(x), plan, 0, kNewTag));
  }
  return y;
}

Tensor differentiate_back(const Tensor& g, const HaloPlanPtr& plan, std::int64_t tag) {
  const GradientCall call(g);
  const Tensor y = collective::below_autograd(accumulate_handle(), g, plan, tag);
  if (call.recording()) {
    collective::record("halo_accumulate", plan->comm(), {g}, {y}, AccumulateAdjoint{plan, tag_of(call)},
                       call.on_tape());
  }
  if (call.has_tangent()) {
    collective::set_tangent(y, accumulate_handle().call(collective::tangent_of(g), plan, kNewTag));
  }
  return y;
}

Tensor shape_only(const Tensor& x, const HaloPlanPtr& plan, double /*fill*/, std::int64_t /*tag*/) {
  return at::empty(plan->sizes(x, plan->needed()), x.options());
}

Tensor shape_only_back(const Tensor& g, const HaloPlanPtr& plan, std::int64_t /*tag*/) {
  return at::empty(plan->sizes(g, plan->owned()), g.options());
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.class_<HaloPlan>("HaloPlan")
      .def("communicates", [](const HaloPlanPtr& self) { return self->communicates(); })
      .def("dims", [](const HaloPlanPtr& self) { return static_cast<std::int64_t>(self->dims()); })
      .def("cells_sent", [](const HaloPlanPtr& self) { return self->list().cells_sent(); })
      .def("cells_received", [](const HaloPlanPtr& self) { return self->list().cells_received(); });
  m.def("halo_exchange(Tensor x, __torch__.torch.classes.weft.HaloPlan plan, float fill, int tag) -> Tensor");
  m.def("halo_accumulate(Tensor g, __torch__.torch.classes.weft.HaloPlan plan, int tag) -> Tensor");
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
  return exchange_handle().call(x, plan, fill, kNewTag);
}

Tensor halo_accumulate(const Tensor& g, const HaloPlanPtr& plan, std::source_location where) {
  const mpi::OperationScope scope("halo_accumulate", plan->comm().get(), where);
  return accumulate_handle().call(g, plan, kNewTag);
}

Tensor halo_exchange_while(const Tensor& x, const HaloPlanPtr& plan, const std::function<void()>& work, double fill) {
  const Setting<const std::function<void()>*> setting(t_work, &work);
  return halo_exchange(x, plan, fill);
}

std::shared_ptr<EarlyReply> EarlyReply::of(const Tensor& padded) {
  const auto node = padded.grad_fn();
  const auto* exchange = dynamic_cast<collective::OperationNodeWith<ExchangeAdjoint>*>(node.get());
  return exchange != nullptr && exchange->adjoint_.plan->communicates() ? exchange->adjoint_.early : nullptr;
}

void EarlyReply::begin(const Tensor& g) {
  gradient_ = g;
  transfer_ = Transfer::of_gradients(g, *plan, mpi::Direction::kBackward, tag);
}

std::optional<Transfer> EarlyReply::take(const Tensor& g) {
  if (!transfer_) return std::nullopt;
  TORCH_CHECK(gradient_.is_same(g), "weft: the gradient of a halo changed after its messages had left");
  gradient_.reset();
  return std::exchange(transfer_, std::nullopt);
}

}  // namespace weft::spatial
