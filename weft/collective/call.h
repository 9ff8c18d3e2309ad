// One call of an operation on this rank: which team, whether gradients are wanted, and the agreement of all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/collective/node.h"
#include "weft/mpi/error.h"
#include "weft/mpi/team.h"
#include "weft/mpi/waiter.h"

namespace weft::collective {

// Set up by an operation's autograd kernel around the kernel that communicates, which fills in what was agreed.
class GradientCall {
 public:
  explicit GradientCall(const at::Tensor& input);
  ~GradientCall();
  GradientCall(const GradientCall&) = delete;
  GradientCall& operator=(const GradientCall&) = delete;

  // The innermost one of this thread, or null below autograd.
  [[nodiscard]] static GradientCall* current() noexcept;

  // Some rank's input requires grad, so every rank records the operation. Without an agreement (tracing, where no
  // rank communicates) this rank's own input decides.
  [[nodiscard]] bool recording() const noexcept;
  [[nodiscard]] bool has_tangent() const noexcept;
  // False while tracing: traced graphs are ordered by their own means.
  [[nodiscard]] bool on_tape() const noexcept { return outcome_.has_value(); }
  // Sizes of the ranks' pieces, which the communicating kernel learnt and the adjoint will need; absent in tracing.
  std::optional<std::vector<std::int64_t>> sizes;

 private:
  friend class Negotiation;
  GradientCall* outer_;
  bool wants_grad_ = false;
  bool has_tangent_ = false;
  std::optional<mpi::Outcome> outcome_;
};

// A number for what must be the same on all ranks.
class Signature {
 public:
  explicit Signature(std::string_view name) { add(name); }
  Signature& add(std::string_view text);
  Signature& add(std::int64_t value) noexcept;
  Signature& add(at::IntArrayRef values) noexcept;
  // Type and all sizes, or all but the size of one dimension.
  Signature& add(const at::Tensor& x, std::int64_t except_dim = -1) noexcept;
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0x9e3779b97f4a7c15;
};

// Opens an operation: finds the team, and brings the ranks to agree on the call before anything is sent.
class Negotiation {
 public:
  Negotiation(const char* name, std::int64_t comm);

  [[nodiscard]] const std::shared_ptr<mpi::Team>& team() const noexcept { return team_; }
  [[nodiscard]] int rank() const noexcept { return team_->rank(); }
  [[nodiscard]] int size() const noexcept { return team_->size(); }
  [[nodiscard]] mpi::CommunicatorView channel() const { return team_->channel(direction_); }
  [[nodiscard]] mpi::Direction direction() const noexcept { return direction_; }

  // Runs this rank's own checks; what they throw is thrown on all ranks by agree().
  template <class Checks>
  void check(Checks&& checks) {
    try {
      checks();
    } catch (const std::exception& error) {
      fail(error);
    }
  }

  // Collective. `describe` gives this rank's text for the error where the ranks differ.
  template <class Describe>
  mpi::Outcome agree(const Signature& signature, std::int64_t value, Describe&& describe) {
    const mpi::Outcome outcome = vote(signature, value);
    if (!problem_.empty() || !outcome.same_call()) settle(problem_.empty() ? describe() : std::string());
    if (outcome.any_wants_grad && outcome.any_grad_disabled) settle_grad_mode(describe());
    return outcome;
  }

 private:
  void fail(const std::exception& error);
  mpi::Outcome vote(const Signature& signature, std::int64_t value);
  [[noreturn]] void settle(const std::string& description);
  [[noreturn]] void settle_grad_mode(const std::string& description);

  const char* name_;
  std::shared_ptr<mpi::Team> team_;
  mpi::OperationScope operation_;
  mpi::Direction direction_;
  std::string problem_;
  std::exception_ptr exception_;
};

// Runs what may wait for other ranks. Where it ends by an alarm or a timeout, which hit the ranks at different places,
// what was recorded is forgotten: the ranks' tapes would not match.
template <class Run>
decltype(auto) interruptible(Run&& run) {
  try {
    return run();
  } catch (const mpi::PeerLost&) {
    Tape::current().reset();
    throw;
  } catch (const mpi::TimeoutError&) {
    Tape::current().reset();
    throw;
  }
}

// A root must name a rank. Throws (TORCH_CHECK).
void require_rank(std::int64_t rank, int size, const char* what);

}  // namespace weft::collective
