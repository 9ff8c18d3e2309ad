#include "weft/mpi/agreement.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "weft/mpi/communicator.h"
#include "weft/mpi/control_tags.h"
#include "weft/mpi/error.h"
#include "weft/mpi/fingerprint.h"
#include "weft/mpi/message/text_collectives.h"
#include "weft/mpi/options.h"

namespace weft::mpi {
namespace {

// Every field merges idempotently (minimum, maximum, or). Therefore log2(n) rounds of "send to the rank 2^k ahead,
// receive from the rank 2^k behind" give all ranks the same result for any number of ranks.
struct AgreementMessage {
  std::uint64_t number;  // index of this agreement in its direction
  std::uint64_t signature_min, signature_max;
  std::int64_t value_min, value_max;
  std::uint64_t flags;
  std::int64_t deadline_ms;  // wall-clock time at which the first rank stops waiting for the others

  void merge(const AgreementMessage& other) noexcept {
    signature_min = std::min(signature_min, other.signature_min);
    signature_max = std::max(signature_max, other.signature_max);
    value_min = std::min(value_min, other.value_min);
    value_max = std::max(value_max, other.value_max);
    flags |= other.flags;
    deadline_ms = std::min(deadline_ms, other.deadline_ms);
  }
};

// The requests own the buffers: a rank that gives up leaves its message in flight, and MPI may read it later.
struct AgreementBuffers {
  AgreementMessage mine, theirs;
};

// Uses the coarse clock, because every agreement reads it. Ranks on several machines share no better clock.
std::int64_t wall_clock_ms() noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return std::int64_t{1000} * now.tv_sec + now.tv_nsec / 1'000'000;
}

AgreementMessage message_of(std::uint64_t number, const AgreementInput& input) noexcept {
  const std::uint64_t flags = std::uint64_t{input.wants_grad} | std::uint64_t{input.grad_disabled} << 16U |
                              std::uint64_t{input.has_tangent} << 32U | std::uint64_t{input.failed} << 48U |
                              std::uint64_t{input.unprepared} << 49U;
  return {number,
          input.signature,
          input.signature,
          input.value,
          input.value,
          flags,
          wall_clock_ms() + options().timeout.count()};
}

AgreementResult result_of(const AgreementMessage& message) noexcept {
  const auto mask = [&](unsigned shift) { return static_cast<LevelMask>(message.flags >> shift); };
  return {
      message.signature_min, message.signature_max, message.value_min, message.value_max, mask(0), mask(16), mask(32),
      (mask(48) & 1U) != 0,  (mask(48) & 2U) != 0};
}

std::string waiting_for(const void* peer) {
  return ", no message from rank " + std::to_string(*static_cast<const int*>(peer)) +
         " (or from a rank that it waits for)";
}

// Sends this rank's message to the rank `distance` ahead and merges the message of the rank `distance` behind.
void exchange_round(Communicator& communicator, const std::shared_ptr<AgreementBuffers>& buffers, int distance,
                    int tag) {
  const int rank = communicator.rank();
  const int size = communicator.size();
  const int ahead = (rank + distance) % size;
  const int behind = (rank - distance + size) % size;
  const MPI_Comm comm = communicator.control().handle();
  auto& [mine, theirs] = *buffers;
  Request incoming(buffers);
  Request outgoing(buffers);
  check(MPI_Irecv(&theirs, sizeof theirs, MPI_BYTE, behind, tag, comm, incoming.add()), "MPI_Irecv", comm);
  check(MPI_Isend(&mine, sizeof mine, MPI_BYTE, ahead, tag, comm, outgoing.add()), "MPI_Isend", comm);
  incoming.wait({.operation = "agreement", .communicator = &communicator, .explain = waiting_for, .subject = &behind});
  outgoing.wait({.operation = "agreement", .communicator = &communicator, .explain = waiting_for, .subject = &ahead});
  if (theirs.number != mine.number) {
    throw MpiError("weft.MpiError: rank " + std::to_string(rank) + " is at agreement " + std::to_string(mine.number) +
                   " of '" + communicator.name() + "' but rank " + std::to_string(behind) + " is at agreement " +
                   std::to_string(theirs.number) + "; do two threads use the communicator at the same time?");
  }
  mine.merge(theirs);
}

// Called if this rank entered the agreement after another rank's deadline. That rank's message has arrived, but the
// rank may have given up since, and continuing without it would hang. Throws PeerLost if it has.
void await_alarm(Communicator& communicator) {
  // A waiting rank checks its clock whenever it runs, so its alarm is already in flight or will never come.
  constexpr std::chrono::milliseconds kGracePeriod{500};
  const auto end = std::chrono::steady_clock::now() + kGracePeriod;
  while (std::chrono::steady_clock::now() < end) {
    communicator.poll_alarm();
    sched_yield();
  }
}

struct EndOfAgreement {
  std::optional<Direction>& agreeing;
  ~EndOfAgreement() { agreeing.reset(); }
};

Failure combine(std::vector<std::string> encoded) {
  Failure combined{"", Failure::Kind::kUserError};
  bool same = true;
  const std::string* first = nullptr;
  for (std::string& text : encoded) {
    if (text.empty()) continue;
    if (text.front() != '0') combined.kind = Failure::Kind::kOther;
    text.erase(0, 1);
    if (first == nullptr) first = &text;
    same = same && text == *first;
  }
  combined.text = same && first == &encoded.front() ? *first : describe_by_rank(encoded, "\n");
  return combined;
}

}  // namespace

AgreementResult Communicator::agree(Direction direction, const AgreementInput& input) {
  if (size_ == 1) return result_of(message_of(0, input));
  const auto which = static_cast<std::size_t>(direction);
  const auto buffers =
      std::make_shared<AgreementBuffers>(AgreementBuffers{message_of(agreements_[which]++, input), {}});
  agreeing_ = direction;
  const EndOfAgreement end{agreeing_};
  return alarm_on_timeout(*this, [&] {
    int tag = static_cast<int>(which) * kAgreementRounds;
    for (int distance = 1; distance < size_; distance *= 2, ++tag) exchange_round(*this, buffers, distance, tag);
    if (wall_clock_ms() >= buffers->mine.deadline_ms) await_alarm(*this);
    ++completed_[which];
    return result_of(buffers->mine);
  });
}

AgreementResult require_agreement(Communicator& communicator, const AgreementInput& input,
                                  const std::string& description) {
  communicator.enter();
  const AgreementResult result = communicator.agree(Direction::kForward, input);
  if (!result.same_call()) throw_disagreement(communicator, description);
  return result;
}

void throw_disagreement(Communicator& communicator, const std::string& description) {
  const auto texts = all_gather_text(communicator, description, "agreement");
  throw Disagreement("weft: the ranks of communicator '" + communicator.name() +
                     "' do not agree on an operation; nothing was sent:\n  " +
                     describe_by_rank(texts, "\n  ", EmptyTexts::kInclude));
}

std::optional<Failure> share_failure(Communicator& communicator, const char* subject,
                                     const std::optional<Failure>& mine) {
  if (communicator.size() == 1) return mine;
  communicator.enter();
  const AgreementResult result =
      communicator.agree(Direction::kForward, {.signature = Fingerprint(subject).value(), .failed = mine.has_value()});
  if (!result.same_signature()) throw_disagreement(communicator, subject);
  if (!result.any_failed) return std::nullopt;
  // Each text starts with its kind, so that a failure without a text still differs from success.
  const std::string encoded = mine ? std::to_string(static_cast<int>(mine->kind)) + mine->text : std::string();
  return combine(all_gather_text(communicator, encoded, "agreement"));
}

std::string describe_by_rank(const std::vector<std::string>& texts, const std::string& separator, EmptyTexts empty) {
  std::vector<std::pair<std::string, std::string>> groups;  // text and ranks, in the order of the lowest rank
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (empty == EmptyTexts::kSkip && texts[rank].empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == texts[rank]; });
    if (group == groups.end()) group = groups.insert(groups.end(), {texts[rank], ""});
    group->second += (group->second.empty() ? "rank " : ", ") + std::to_string(rank);
  }
  std::string description;
  for (const auto& [text, ranks] : groups) {
    description += (description.empty() ? "" : separator) + ranks + ": " + text;
  }
  return description;
}

}  // namespace weft::mpi
