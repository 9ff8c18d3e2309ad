// The ranks that an operation involves, with separate channels for forward, backward and control traffic.
//
// Before a collective communicates, its ranks agree: one short exchange tells whether all of them called the same
// operation with arguments that fit, whether one of them failed its own checks, and which want gradients. That
// exchange can time out and be interrupted; once it is through, every rank is inside the operation and the payload
// can use MPI's fast blocking calls. A rank that fails elsewhere raises an alarm, which ends its peers' waits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/mpi/communicator.h"
#include "weft/mpi/request.h"

namespace weft::mpi {

enum class Direction : std::int8_t { kForward = 0, kBackward = 1 };

// What a rank brings to an agreement.
struct Vote {
  std::uint64_t signature = 0;  // must be equal on all ranks
  std::int64_t value = 0;       // may differ; everybody learns the smallest and the largest
  bool wants_grad = false;      // this rank's input requires grad
  bool grad_disabled = false;   // this rank could not record a gradient
  bool has_tangent = false;     // this rank's input carries a forward-mode derivative
  bool failed = false;          // this rank's arguments are wrong: nobody communicates
};

// What all ranks learn; the same everywhere.
struct Outcome {
  std::uint64_t signature_min = 0, signature_max = 0;
  std::int64_t value_min = 0, value_max = 0;
  bool any_wants_grad = false, any_grad_disabled = false, any_has_tangent = false, any_failed = false;

  [[nodiscard]] bool same_call() const noexcept { return signature_min == signature_max && !any_failed; }
  [[nodiscard]] bool same_value() const noexcept { return value_min == value_max; }
};

class Team : public std::enable_shared_from_this<Team> {
 public:
  // Collective. Works on duplicates, so traffic of the given communicator's other users never matches.
  [[nodiscard]] static std::shared_ptr<Team> over(const CommunicatorView& comm, const std::string& name = "");
  // Collective. Takes a communicator that nobody else uses.
  [[nodiscard]] static std::shared_ptr<Team> adopt(Communicator origin);
  // The team of MPI_COMM_WORLD, made at the first call. Collective then.
  [[nodiscard]] static std::shared_ptr<Team> world();

  // As close().
  ~Team() { close(); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // The open team with this number. Throws std::invalid_argument if there is none (any more).
  [[nodiscard]] static std::shared_ptr<Team> find(std::int64_t id);

  // A small number that names the team in this process, for those who cannot hold a pointer.
  [[nodiscard]] std::int64_t id() const noexcept { return id_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // What the team was made from: for split, cart and questions about the grid. Carries no traffic.
  [[nodiscard]] CommunicatorView origin() const;
  [[nodiscard]] CommunicatorView channel(Direction direction) const;
  [[nodiscard]] CommunicatorView control() const;
  // The same ranks in reverse order, for suffix scans. Collective at the first call per direction.
  [[nodiscard]] CommunicatorView reversed(Direction direction);

  // Ends the team: later operations throw. Collective by convention, like MPI_Comm_free.
  void close() noexcept;
  [[nodiscard]] bool closed() const noexcept { return closed_; }

  // First thing in every operation: throws if the team is closed or a peer raised an alarm; rebuilds the channels
  // (collectively) after a failure.
  void enter();

  // Collective over the team; see the head of this file. On one rank it costs nothing.
  [[nodiscard]] Outcome agree(Direction direction, const Vote& vote);
  // After an agreement that failed: gathers every rank's text and throws Disagreement with all of them.
  [[noreturn]] void disagree(const std::string& mine);

  // Tells all other ranks that this one failed; they throw PeerLost where they wait, or at their next operation.
  // The next operation of everybody runs on fresh channels. Never throws.
  void raise_alarm(const std::string& cause) noexcept;
  // Throws PeerLost if another rank raised an alarm.
  void poll_alarm();

  // A number unique among the messages this rank sends in this team.
  [[nodiscard]] std::int64_t next_transfer() noexcept { return transfers_.fetch_add(1); }
  // Folds a transfer number into the tags that this MPI allows, above the control channel's own.
  [[nodiscard]] int transfer_tag(std::int64_t transfer) const noexcept;

 private:
  explicit Team(Communicator origin);
  void open_channels();
  void leak_channels() noexcept;
  // Whether messages of this rank may still be on their way to peers that have not looked for them.
  [[nodiscard]] bool may_have_messages_out() const noexcept { return broken_ || transfers_ != settled_transfers_; }
  struct Rebuild;
  void begin_rebuild();
  void rebuild();
  // For a rank that came to an agreement later than another would wait: that one's ballot is here, but it may have
  // given up since, and going on without it would hang. Throws PeerLost if so.
  void await_alarm();
  struct Booth;
  void exchange_ballots(const std::shared_ptr<Booth>& booth, int reach, int tag);
  Outcome exchange_votes(Direction direction, const Vote& vote);

  Communicator origin_;
  Communicator control_;
  std::array<Communicator, 2> channels_;
  std::array<Communicator, 2> reversed_;
  std::array<std::uint64_t, 2> agreements_{};
  std::vector<Request> alarms_sent_;
  std::shared_ptr<Rebuild> rebuild_;  // null unless one was begun
  std::atomic<std::int64_t> transfers_{0};
  std::int64_t settled_transfers_ = 0;  // those before the last agreement
  std::string name_;
  std::int64_t id_ = -1;
  int rank_;
  int size_;
  int tag_limit_;
  bool broken_ = false;
  bool closed_ = false;
};

// Raises an alarm on every open team: for a process that is about to die of an exception.
void raise_alarm_everywhere(const std::string& cause) noexcept;

}  // namespace weft::mpi
