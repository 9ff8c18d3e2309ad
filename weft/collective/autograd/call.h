// The context of one collective call on this rank: its communicator, its autograd state and the agreement of all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/mpi/communicator.h"
#include "weft/mpi/error.h"
#include "weft/mpi/fingerprint.h"
#include "weft/mpi/waiter.h"
#include "weft/node/call.h"

namespace weft::collective {

// Autograd state of a call. The autograd kernel creates it around the communicating kernel, which stores the agreement
// in it. torch.func runs the autograd kernel once per transform, each inside the previous one. These nested calls are
// the levels of one operation: the ranks agree once, and the agreement reaches every level.
class GradientCall {
 public:
  explicit GradientCall(const at::Tensor& input);
  // `differentiable`: false if the result of the operation has no gradient. By default, the type of the input decides.
  GradientCall(const at::Tensor& input, bool differentiable);
  ~GradientCall();
  GradientCall(const GradientCall&) = delete;
  GradientCall& operator=(const GradientCall&) = delete;

  // The innermost GradientCall of this thread; null below autograd.
  [[nodiscard]] static GradientCall* current() noexcept;

  // True if the input of any rank requires grad at this level: every rank then records the operation. Without an
  // agreement (while tracing, when no rank communicates) only this rank's input counts.
  [[nodiscard]] bool recording() const noexcept;
  // True if the input of any rank has a forward-mode derivative at this level.
  [[nodiscard]] bool has_tangent() const noexcept;
  // False while tracing: the tracer orders its graph itself.
  [[nodiscard]] bool on_tape() const noexcept { return levels_->outcome.has_value(); }
  // Sizes of the ranks' pieces, which the adjoint needs. The communicating kernel sets them; absent while tracing.
  [[nodiscard]] const std::optional<std::vector<std::int64_t>>& sizes() const noexcept { return levels_->sizes; }
  void set_sizes(std::vector<std::int64_t> sizes) { levels_->sizes = std::move(sizes); }

 private:
  friend class CollectiveCall;
  struct Levels {
    int count = 0;
    bool differentiable = true;
    mpi::LevelMask wants_grad = 0;
    mpi::LevelMask grad_disabled = 0;
    mpi::LevelMask has_tangent = 0;
    std::optional<mpi::AgreementResult> outcome;
    std::optional<std::vector<std::int64_t>> sizes;
  };

  GradientCall* outer_;
  Levels own_;
  Levels* levels_;  // state of all levels of the operation, owned by its outermost call
  mpi::LevelMask bit_;
};

// Hash of the properties of a call that must be equal on all ranks.
class Signature {
 public:
  explicit Signature(std::string_view name) noexcept : fingerprint_(name) {}
  Signature& add(std::string_view text) noexcept;
  Signature& add(std::int64_t value) noexcept;
  Signature& add(at::IntArrayRef values) noexcept;
  // Adds the dtype and all sizes except the size of dimension `except_dim`.
  Signature& add(const at::Tensor& x, std::int64_t except_dim = -1) noexcept;
  [[nodiscard]] std::uint64_t value() const noexcept { return fingerprint_.value(); }

 private:
  mpi::Fingerprint fingerprint_;
};

// The message of an exception, without the stack trace of a c10::Error.
[[nodiscard]] std::string message_of(const std::exception& error);

// Runs code that other ranks depend on. If it fails, raises an alarm with the cause, unless the other ranks know
// already or it timed out.
template <class Run>
decltype(auto) alarm_on_failure(Communicator& communicator, Run&& run) {
  try {
    return run();
  } catch (const mpi::SharedFailure&) {
    throw;
  } catch (const mpi::TimeoutError&) {
    throw;
  } catch (const mpi::Interrupted&) {
    throw;  // waits that the peers depend on have raised an alarm
  } catch (const std::exception& error) {
    communicator.raise_alarm(message_of(error));
    throw;
  }
}

// A call of a collective operation. It finds the communicator, runs this rank's argument checks and makes the ranks
// agree on the call before they send data.
class CollectiveCall {
 public:
  // `name`: a string literal. `comm`: the id of the communicator. Throws if the communicator is closed or unknown.
  CollectiveCall(const char* name, std::int64_t comm);

  [[nodiscard]] const std::shared_ptr<Communicator>& communicator() const noexcept { return communicator_; }
  [[nodiscard]] int rank() const noexcept { return communicator_->rank(); }
  [[nodiscard]] int size() const noexcept { return communicator_->size(); }
  [[nodiscard]] mpi::CommView channel() const { return communicator_->channel(direction_); }
  [[nodiscard]] mpi::Direction direction() const noexcept { return direction_; }

  // Runs this rank's argument checks, and allocates memory that does not depend on other ranks. agree() throws their
  // exception on all ranks.
  template <class Checks>
  void check(Checks&& checks) {
    try {
      checks();
    } catch (const std::exception& error) {
      store_failure(error);
    }
  }
  // Runs preparations that depend on a guess about other ranks, such as equal sizes. If they fail on any rank, the
  // outcome of agree() has any_unprepared, and all ranks must call confirm().
  template <class Preparations>
  void attempt(Preparations&& preparations) {
    try {
      preparations();
    } catch (const std::exception&) {
      unprepared_ = true;
    }
  }

  // Collective. Throws on all ranks if a check failed, or if the signatures or grad modes differ. `describe` returns
  // this rank's text for the error message. The smallest and largest `value` of all ranks are part of the result.
  template <class Describe>
  mpi::AgreementResult agree(const Signature& signature, std::int64_t value, Describe&& describe) {
    const mpi::AgreementResult outcome = exchange(signature, value);
    if (!problem_.empty() || !outcome.same_call()) throw_mismatch(problem_.empty() ? describe() : std::string());
    if ((outcome.any_wants_grad & outcome.any_grad_disabled) != 0) throw_grad_mode_mismatch(describe());
    return outcome;
  }

  // Collective. Runs checks and allocations that depend on the data of other ranks, after agree() and before the
  // payload is sent. Throws on all ranks if one fails. `describe` returns the text of a rank without a failure.
  template <class Checks, class Describe>
  void confirm(Checks&& checks, Describe&& describe) {
    check(checks);
    if (any_failed()) throw_failures(problem_.empty() ? describe() : std::string());
  }

  // Runs the operation after the agreement. If it fails on this rank, the other ranks throw PeerLost with the cause.
  template <class Run>
  decltype(auto) run(Run&& run);

  // Describes the blocking call of weft/node that sends `in` and writes `out`.
  [[nodiscard]] node::Call transfer(at::Tensor in, at::Tensor out) const;

 private:
  void store_failure(const std::exception& error);
  [[nodiscard]] bool any_failed();
  [[noreturn]] void throw_failures(const std::string& description);
  mpi::AgreementResult exchange(const Signature& signature, std::int64_t value);
  [[noreturn]] void throw_disagreement(const std::string& description);
  [[noreturn]] void throw_mismatch(const std::string& description);
  [[noreturn]] void throw_grad_mode_mismatch(const std::string& description);

  const char* name_;
  std::shared_ptr<Communicator> communicator_;
  mpi::OperationScope operation_;
  mpi::Direction direction_;
  std::string problem_;
  std::exception_ptr exception_;
  bool unprepared_ = false;
  int levels_ = 1;
};

// Discards the operations recorded on the current tape.
void discard_recorded() noexcept;

// Runs code that may wait for other ranks. A lost peer, a timeout or a signal interrupts the ranks at different
// operations, so their tapes no longer match: all discard the recorded operations before the exception propagates.
template <class Run>
decltype(auto) interruptible(Run&& run) {
  try {
    return run();
  } catch (const mpi::PeerLost&) {
    discard_recorded();
    throw;
  } catch (const mpi::TimeoutError&) {
    discard_recorded();
    throw;
  } catch (const mpi::Interrupted&) {
    discard_recorded();
    throw;
  }
}

template <class Run>
decltype(auto) CollectiveCall::run(Run&& run) {
  return interruptible([&]() -> decltype(auto) { return alarm_on_failure(*communicator_, std::forward<Run>(run)); });
}

// Throws (TORCH_CHECK) inside a function that torch.utils.checkpoint will recompute. Each rank recomputes when its own
// backward pass needs the result, so the ranks would repeat their communication in different orders.
void reject_checkpointing();

// Throws (TORCH_CHECK) inside a transform of torch.func, or if x has a forward-mode derivative.
void reject_transforms(const at::Tensor& x, const char* operation);

// Throws (TORCH_CHECK) unless 0 <= rank < size. `what` names the argument in the message.
void require_rank(std::int64_t rank, int size, const char* what);

}  // namespace weft::collective
