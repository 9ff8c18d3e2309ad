#include "weft/collective/autograd/call.h"

#include <ATen/functorch/DynamicLayer.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/library.h>

#include <limits>

#include "weft/collective/autograd/node.h"
#include "weft/collective/autograd/tape.h"
#include "weft/collective/tensor.h"
#include "weft/mpi/error.h"
#include "weft/mpi/options.h"

namespace weft::collective {
namespace {

thread_local GradientCall* t_call = nullptr;

constexpr mpi::LevelMask kAllLevels = std::numeric_limits<mpi::LevelMask>::max();

thread_local int t_checkpointed = 0;

// Gradient hooks run without grad mode and are allowed.
void reject_recomputation(mpi::Direction direction) {
  const bool inside_backward = torch::autograd::get_current_graph_task_id() != -1;
  TORCH_CHECK(!inside_backward || direction == mpi::Direction::kBackward || !c10::GradMode::is_enabled() ||
                  torch::autograd::get_current_graph_task_keep_graph(),
              "weft: communication is recomputed inside backward, at different times on each rank; keep it outside of ",
              "functions that are recomputed, such as those of torch.utils.checkpoint");
}

}  // namespace

// An outer call without an agreement is another level of the same operation. With one, it has communicated, and this
// call belongs to the operation that computes its derivative.
GradientCall::GradientCall(const at::Tensor& input)
    : GradientCall(input, torch::autograd::isDifferentiableType(input.scalar_type())) {}

GradientCall::GradientCall(const at::Tensor& input, bool differentiable)
    : outer_(t_call), levels_(outer_ != nullptr && !outer_->levels_->outcome ? outer_->levels_ : &own_) {
  TORCH_CHECK(levels_->count < std::numeric_limits<mpi::LevelMask>::digits, "weft: more than ",
              std::numeric_limits<mpi::LevelMask>::digits, " nested transforms of torch.func");
  bit_ = static_cast<mpi::LevelMask>(1U << static_cast<unsigned>(levels_->count++));
  levels_->differentiable = differentiable;
  if (!c10::GradMode::is_enabled()) {
    levels_->grad_disabled |= bit_;
  } else if (input.requires_grad()) {
    levels_->wants_grad |= bit_;
  }
  if (torch::autograd::isFwGradDefined(input)) levels_->has_tangent |= bit_;
  t_call = this;
}

GradientCall::~GradientCall() { t_call = outer_; }

GradientCall* GradientCall::current() noexcept { return t_call; }

bool GradientCall::recording() const noexcept {
  const auto& outcome = levels_->outcome;
  return c10::GradMode::is_enabled() && ((outcome ? outcome->any_wants_grad : levels_->wants_grad) & bit_) != 0;
}

bool GradientCall::has_tangent() const noexcept {
  const auto& outcome = levels_->outcome;
  return ((outcome ? outcome->any_has_tangent : levels_->has_tangent) & bit_) != 0;
}

Signature& Signature::add(std::string_view text) noexcept {
  fingerprint_.add(text);
  return *this;
}

Signature& Signature::add(std::int64_t value) noexcept {
  fingerprint_.add(value);
  return *this;
}

Signature& Signature::add(at::IntArrayRef values) noexcept {
  add(static_cast<std::int64_t>(values.size()));
  for (const std::int64_t value : values) add(value);
  return *this;
}

Signature& Signature::add(const at::Tensor& x, std::int64_t except_dim) noexcept {
  add(static_cast<std::int64_t>(x.scalar_type()));
  add(x.dim());
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    if (i != except_dim) add(x.size(i));
  }
  return *this;
}

CollectiveCall::CollectiveCall(const char* name, std::int64_t comm)
    : name_(name),
      communicator_(Communicator::find(comm)),
      operation_(name, communicator_.get()),
      direction_(current_direction()) {
  interruptible([&] { communicator_->enter(); });
  check([&] {
    reject_checkpointing();
    reject_recomputation(direction_);
  });
}

void CollectiveCall::store_failure(const std::exception& error) {
  if (!problem_.empty()) return;
  problem_ = message_of(error);
  exception_ = std::current_exception();
}

mpi::AgreementResult CollectiveCall::exchange(const Signature& signature, std::int64_t value) {
  GradientCall* call = GradientCall::current();
  GradientCall::Levels none;  // below autograd, nothing can be recorded
  none.count = 1;
  none.grad_disabled = kAllLevels;
  const GradientCall::Levels& levels = call != nullptr ? *call->levels_ : none;
  levels_ = levels.count;
  const mpi::AgreementInput input{.signature = Signature(signature).add(levels.count).value(),
                                  .value = value,
                                  .wants_grad = levels.wants_grad,
                                  .grad_disabled = levels.grad_disabled,
                                  .has_tangent = levels.has_tangent,
                                  .failed = !problem_.empty(),
                                  .unprepared = unprepared_};
  mpi::AgreementResult outcome;
  if (mpi::options().check) {
    outcome = interruptible([&] { return communicator_->agree(direction_, input); });
  } else {
    // Without an exchange, record whenever a gradient is possible: another rank may need it. Transforms of torch.func
    // record only what this rank differentiates.
    const auto plain =
        static_cast<mpi::LevelMask>(levels.differentiable ? 1U << static_cast<unsigned>(levels.count - 1) : 0U);
    outcome = {.value_min = value,
               .value_max = value,
               .any_wants_grad = static_cast<mpi::LevelMask>(input.wants_grad | (plain & ~input.grad_disabled)),
               .any_has_tangent = input.has_tangent,
               .any_failed = input.failed};
  }
  if (call != nullptr) call->levels_->outcome = outcome;
  return outcome;
}

node::Call CollectiveCall::transfer(at::Tensor in, at::Tensor out) const {
  const bool host_memory = (!in.defined() || in.device().is_cpu()) && (!out.defined() || out.device().is_cpu());
  return {name_, communicator_.get(), keep_alive(std::move(in), std::move(out)), host_memory};
}

bool CollectiveCall::any_failed() {
  const mpi::AgreementInput input{.signature = mpi::Fingerprint(name_).value(), .failed = !problem_.empty()};
  return !interruptible([&] { return communicator_->agree(direction_, input); }).same_call();
}

void CollectiveCall::throw_disagreement(const std::string& description) {
  if (direction_ == mpi::Direction::kBackward) note_informed(*communicator_);
  mpi::throw_disagreement(*communicator_, description);
}

void CollectiveCall::throw_mismatch(const std::string& description) {
  if (exception_ && !mpi::options().check) std::rethrow_exception(exception_);  // the peers do not listen
  throw_failures(description);
}

void CollectiveCall::throw_failures(const std::string& description) {
  if (exception_ && communicator_->size() == 1) std::rethrow_exception(exception_);
  const std::string transforms =
      levels_ == 1 ? "" : " inside torch.func with " + std::to_string(levels_ - 1) + " level(s) of differentiation";
  const std::string mine = problem_.empty() ? description + transforms + " called from " + mpi::call_site()
                                            : std::string(name_) + " failed: " + problem_;
  throw_disagreement(mine);
}

void CollectiveCall::throw_grad_mode_mismatch(const std::string& description) {
  throw_disagreement(description + (c10::GradMode::is_enabled() ? " with gradients" : " under no_grad") +
                     " called from " + mpi::call_site());
}

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

void discard_recorded() noexcept { Tape::current().reset(); }

void reject_checkpointing() {
  TORCH_CHECK(t_checkpointed == 0,
              "weft: communication inside torch.utils.checkpoint would be repeated in backward, at different times on ",
              "each rank; move it out of the checkpointed function");
}

void reject_transforms(const at::Tensor& x, const char* operation) {
  TORCH_CHECK(at::functorch::getDynamicLayerStack().empty(), "weft: ", operation,
              " does not support the transforms of torch.func; use a blocking collective");
  TORCH_CHECK(!torch::autograd::isFwGradDefined(x), "weft: ", operation,
              " does not carry forward-mode derivatives; use a blocking collective, or reverse mode");
}

void require_rank(std::int64_t rank, int size, const char* what) {
  TORCH_CHECK(rank >= 0 && rank < size, "weft: expected ", what, " to be a rank in [0, ", size - 1, "], got ", rank);
}

namespace {

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("enter_checkpoint() -> ()", [] { ++t_checkpointed; });
  m.def("leave_checkpoint() -> ()", [] { --t_checkpointed; });
}

}  // namespace
}  // namespace weft::collective
