#include "weft/collective/call.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include "weft/collective/operator.h"
#include "weft/mpi/error.h"
#include "weft/mpi/options.h"

namespace weft::collective {
namespace {

thread_local GradientCall* t_call = nullptr;

// Recomputation by torch.utils.checkpoint happens when a rank's own backward pass needs it, so ranks would meet in
// it only by luck. Gradient hooks, which run without grad mode, are fine.
void refuse_recomputation(mpi::Direction direction) {
  const bool inside_backward = torch::autograd::get_current_graph_task_id() != -1;
  TORCH_CHECK(
      !inside_backward || direction == mpi::Direction::kBackward || !c10::GradMode::is_enabled() ||
          torch::autograd::get_current_graph_task_keep_graph(),
      "weft: communication is being recomputed inside backward (torch.utils.checkpoint?), and ranks would do so ",
      "at different times. Keep communication outside of checkpointed functions.");
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0xff51afd7ed558ccd;
  return hash ^ (hash >> 32);
}

}  // namespace

GradientCall::GradientCall(const at::Tensor& input)
    : outer_(t_call),
      wants_grad_(input.requires_grad() && c10::GradMode::is_enabled()),
      has_tangent_(torch::autograd::isFwGradDefined(input)) {
  t_call = this;
}

GradientCall::~GradientCall() { t_call = outer_; }

GradientCall* GradientCall::current() noexcept { return t_call; }

bool GradientCall::recording() const noexcept {
  return c10::GradMode::is_enabled() && (outcome_ ? outcome_->any_wants_grad : wants_grad_);
}

bool GradientCall::has_tangent() const noexcept { return outcome_ ? outcome_->any_has_tangent : has_tangent_; }

Signature& Signature::add(std::string_view text) {
  for (const char c : text) value_ = mix(value_, static_cast<unsigned char>(c));
  return *this;
}

Signature& Signature::add(std::int64_t value) noexcept {
  value_ = mix(value_, static_cast<std::uint64_t>(value));
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

Negotiation::Negotiation(const char* name, std::int64_t comm)
    : name_(name), team_(mpi::Team::find(comm)), operation_(name, team_.get()), direction_(current_direction()) {
  interruptible([&] { team_->enter(); });
  check([&] { refuse_recomputation(direction_); });
}

void Negotiation::fail(const std::exception& error) {
  if (!problem_.empty()) return;
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  problem_ = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  exception_ = std::current_exception();
}

mpi::Outcome Negotiation::vote(const Signature& signature, std::int64_t value) {
  GradientCall* call = GradientCall::current();
  const mpi::Vote vote{.signature = signature.value(),
                       .value = value,
                       .wants_grad = call != nullptr && call->wants_grad_,
                       .grad_disabled = call == nullptr || !c10::GradMode::is_enabled(),
                       .has_tangent = call != nullptr && call->has_tangent_,
                       .failed = !problem_.empty()};
  mpi::Outcome outcome;
  if (mpi::options().check) {
    outcome = interruptible([&] { return team_->agree(direction_, vote); });
  } else {
    // Nobody asks: record wherever grad mode is on, because another rank may want the gradient.
    outcome = {.value_min = value,
               .value_max = value,
               .any_wants_grad = !vote.grad_disabled,
               .any_has_tangent = vote.has_tangent,
               .any_failed = vote.failed};
  }
  if (call != nullptr) call->outcome_ = outcome;
  return outcome;
}

void Negotiation::settle(const std::string& description) {
  // Alone, or where nobody listens, the original exception says it best.
  if (exception_ && (team_->size() == 1 || !mpi::options().check)) std::rethrow_exception(exception_);
  const std::string mine =
      problem_.empty() ? description + " called from " + mpi::call_site() : std::string(name_) + " failed: " + problem_;
  team_->disagree(mine);
}

void Negotiation::settle_grad_mode(const std::string& description) {
  team_->disagree(description + (c10::GradMode::is_enabled() ? " with gradients" : " under no_grad") + " called from " +
                  mpi::call_site());
}

void require_rank(std::int64_t rank, int size, const char* what) {
  TORCH_CHECK(rank >= 0 && rank < size, "weft: expected ", what, " to be a rank in [0, ", size - 1, "], got ", rank);
}

}  // namespace weft::collective
