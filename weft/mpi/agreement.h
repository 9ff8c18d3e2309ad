// Agreement: all ranks of a communicator continue, or all of them throw the same error.
//
// Communicator::agree() is the basic step. The functions below build on it. All are collective over the communicator,
// and all throw TimeoutError if a rank does not take part and PeerLost if a rank raises an alarm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft::mpi {

class Communicator;

// One bit per level of differentiation. A call outside of torch.func's transforms has one level, bit 0.
using LevelMask = std::uint16_t;

// The input of one rank.
struct AgreementInput {
  std::uint64_t signature = 0;  // must be equal on all ranks; see Fingerprint
  std::int64_t value = 0;       // may differ; all ranks learn the minimum and the maximum
  LevelMask wants_grad = 0;     // this rank's input requires grad
  LevelMask grad_disabled = 0;  // this rank cannot record a gradient
  LevelMask has_tangent = 0;    // this rank's input carries a forward-mode derivative
  bool failed = false;          // this rank's arguments are invalid, so no rank may communicate
  bool unprepared = false;      // this rank must prepare more before it communicates; the ranks then agree again
};

// The result, equal on all ranks.
struct AgreementResult {
  std::uint64_t signature_min = 0, signature_max = 0;
  std::int64_t value_min = 0, value_max = 0;
  LevelMask any_wants_grad = 0, any_grad_disabled = 0, any_has_tangent = 0;
  bool any_failed = false;
  bool any_unprepared = false;

  [[nodiscard]] bool same_signature() const noexcept { return signature_min == signature_max; }
  [[nodiscard]] bool same_call() const noexcept { return same_signature() && !any_failed; }
  [[nodiscard]] bool same_value() const noexcept { return value_min == value_max; }
};

// Enters the communicator and agrees in the forward direction. If signatures differ or a rank failed, every rank throws
// Disagreement with the descriptions of all ranks.
AgreementResult require_agreement(Communicator& communicator, const AgreementInput& input,
                                  const std::string& description);

// Throws Disagreement with the descriptions of all ranks. Call it on every rank after an agreement that failed.
[[noreturn]] void throw_disagreement(Communicator& communicator, const std::string& description);

// The failure of one rank, or of several ranks combined.
struct Failure {
  enum class Kind : std::int8_t { kUserError = 0, kOther = 1 };
  std::string text;
  Kind kind = Kind::kOther;
};

// Returns once all ranks have called it. If no rank failed, the result is empty. Otherwise every rank gets the same
// combined failure, which is a user error only if all failures are. Its text names the failed ranks. It omits
// them if rank 0 failed and all failures have the same text.
// `subject` names the work and must be equal on all ranks; otherwise all ranks throw Disagreement.
[[nodiscard]] std::optional<Failure> share_failure(Communicator& communicator, const char* subject,
                                                   const std::optional<Failure>& mine);

// The texts of all ranks for an error message, equal ones combined: "rank 0, 2: text" + separator + "rank 1: other".
// `texts[i]` belongs to rank i.
enum class EmptyTexts : std::int8_t { kInclude, kSkip };
[[nodiscard]] std::string describe_by_rank(const std::vector<std::string>& texts, const std::string& separator,
                                           EmptyTexts empty = EmptyTexts::kSkip);

}  // namespace weft::mpi
