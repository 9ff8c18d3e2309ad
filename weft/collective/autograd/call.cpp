#include "weft/collective/autograd/call.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include "weft/collective/autograd/node.h"
#include "weft/collective/autograd/tape.h"
#include "weft/mpi/error.h"
#include "weft/mpi/options.h"

namespace weft::collective {
namespace {

thread_local GradientCall* t_call = nullptr;

// torch.utils.checkpoint recomputes when the backward pass of this rank needs it, which differs between ranks: they
// would communicate in different orders. Gradient hooks run without grad mode and are allowed.
void reject_recomputation(mpi::Direction direction) {
  const bool inside_backward = torch::autograd::get_current_graph_task_id() != -1;
  TORCH_CHECK(
      !inside_backward || direction == mpi::Direction::kBackward || !c10::GradMode::is_enabled() ||
          torch::autograd::get_current_graph_task_keep_graph(),
      "weft: communication is recomputed inside backward (torch.utils.checkpoint?), at different times on each rank; ",
      "keep communication outside of checkpointed functions");
}

}  // namespace

GradientCall::GradientCall(const at::Tensor& input)
    : GradientCall(input, torch::autograd::isDifferentiableType(input.scalar_type())) {}

GradientCall::GradientCall(const at::Tensor& input, bool differentiable)
    : outer_(t_call),
      wants_grad_(input.requires_grad() && c10::GradMode::is_enabled()),
      has_tangent_(torch::autograd::isFwGradDefined(input)),
      differentiable_(differentiable) {
  t_call = this;
}

GradientCall::~GradientCall() { t_call = outer_; }

GradientCall* GradientCall::current() noexcept { return t_call; }

bool GradientCall::recording() const noexcept {
  return c10::GradMode::is_enabled() && (outcome_ ? outcome_->any_wants_grad : wants_grad_);
}

bool GradientCall::has_tangent() const noexcept { return outcome_ ? outcome_->any_has_tangent : has_tangent_; }

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
  check([&] { reject_recomputation(direction_); });
}

void CollectiveCall::store_failure(const std::exception& error) {
  if (!problem_.empty()) return;
  problem_ = message_of(error);
  exception_ = std::current_exception();
}

mpi::AgreementResult CollectiveCall::exchange(const Signature& signature, std::int64_t value) {
  GradientCall* call = GradientCall::current();
  const mpi::AgreementInput input{.signature = signature.value(),
                                  .value = value,
                                  .wants_grad = call != nullptr && call->wants_grad_,
                                  .grad_disabled = call == nullptr || !c10::GradMode::is_enabled(),
                                  .has_tangent = call != nullptr && call->has_tangent_,
                                  .failed = !problem_.empty(),
                                  .unprepared = unprepared_};
  mpi::AgreementResult outcome;
  if (mpi::options().check) {
    outcome = interruptible([&] { return communicator_->agree(direction_, input); });
  } else {
    // Without an exchange, record whenever a gradient is possible: another rank may need it.
    outcome = {.value_min = value,
               .value_max = value,
               .any_wants_grad = input.wants_grad || (!input.grad_disabled && call->differentiable_),
               .any_has_tangent = input.has_tangent,
               .any_failed = input.failed};
  }
  if (call != nullptr) call->outcome_ = outcome;
  return outcome;
}

bool CollectiveCall::any_failed() {
  const mpi::AgreementInput input{.signature = mpi::Fingerprint(name_).value(), .failed = !problem_.empty()};
  return !interruptible([&] { return communicator_->agree(direction_, input); }).same_call();
}

void CollectiveCall::throw_mismatch(const std::string& description) {
  if (exception_ && !mpi::options().check) std::rethrow_exception(exception_);  // the peers do not listen
  throw_failures(description);
}

void CollectiveCall::throw_failures(const std::string& description) {
  if (exception_ && communicator_->size() == 1) std::rethrow_exception(exception_);
  const std::string mine =
      problem_.empty() ? description + " called from " + mpi::call_site() : std::string(name_) + " failed: " + problem_;
  mpi::throw_disagreement(*communicator_, mine);
}

void CollectiveCall::throw_grad_mode_mismatch(const std::string& description) {
  mpi::throw_disagreement(*communicator_, description +
                                              (c10::GradMode::is_enabled() ? " with gradients" : " under no_grad") +
                                              " called from " + mpi::call_site());
}

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

void discard_recorded() noexcept { Tape::current().reset(); }

void require_rank(std::int64_t rank, int size, const char* what) {
  TORCH_CHECK(rank >= 0 && rank < size, "weft: expected ", what, " to be a rank in [0, ", size - 1, "], got ", rank);
}

}  // namespace weft::collective
