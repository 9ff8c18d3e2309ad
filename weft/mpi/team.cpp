#include "weft/mpi/team.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <stdexcept>

#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"
#include "weft/mpi/options.h"

namespace weft::mpi {
namespace {

// Tags on the control channel. Agreements take one tag per round and direction, 2^64 ranks at the most.
constexpr int kRounds = 64;
constexpr int kAlarmTag = 2 * kRounds;
constexpr int kFirstTransferTag = 256;

// Every field merges idempotently (minimum, maximum, or), so log2(n) rounds of "send to the rank 2^k ahead,
// receive from the rank 2^k behind" bring everybody the same answer for any number of ranks.
struct Ballot {
  std::uint64_t number;  // which agreement of its direction this is
  std::uint64_t signature_min, signature_max;
  std::int64_t value_min, value_max;
  std::uint64_t flags;
  std::int64_t gives_up_ms;  // when the first of the ranks stops waiting for the others, by the wall clock

  void merge(const Ballot& other) noexcept {
    signature_min = std::min(signature_min, other.signature_min);
    signature_max = std::max(signature_max, other.signature_max);
    value_min = std::min(value_min, other.value_min);
    value_max = std::max(value_max, other.value_max);
    flags |= other.flags;
    gives_up_ms = std::min(gives_up_ms, other.gives_up_ms);
  }
};

// Coarse, for it is read in every agreement; ranks on several machines share no better clock.
std::int64_t wall_clock_ms() noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return std::int64_t{1000} * now.tv_sec + now.tv_nsec / 1'000'000;
}

Ballot ballot_of(std::uint64_t number, const Vote& vote) noexcept {
  const std::uint64_t flags = (vote.wants_grad ? 1U : 0U) | (vote.grad_disabled ? 2U : 0U) |
                              (vote.has_tangent ? 4U : 0U) | (vote.failed ? 8U : 0U);
  return {number,
          vote.signature,
          vote.signature,
          vote.value,
          vote.value,
          flags,
          wall_clock_ms() + options().timeout.count()};
}

Outcome outcome_of(const Ballot& ballot) noexcept {
  return {ballot.signature_min,     ballot.signature_max,     ballot.value_min,         ballot.value_max,
          (ballot.flags & 1U) != 0, (ballot.flags & 2U) != 0, (ballot.flags & 4U) != 0, (ballot.flags & 8U) != 0};
}

std::string waiting_for(const void* peer) {
  return ", no word from rank " + std::to_string(*static_cast<const int*>(peer)) +
         " (or from a rank that it waits for)";
}

// Teams by number; a number is never used twice.
struct Registry {
  std::mutex mutex;
  std::map<std::int64_t, std::weak_ptr<Team>> teams;
  std::int64_t next = 0;
};

Registry& registry() {
  static auto* registry = new Registry();
  return *registry;
}

// Communicators that were let go of. A peer's alarm, of which this rank knows nothing, may be on its way to them; freed
// at once, their numbers could be given to others that do not even have that peer. So they are kept for a while, and
// for good where something did come.
class Retired {
 public:
  void add(Communicator comm) {
    const std::lock_guard lock(mutex_);
    if (comm.valid()) kept_.push_back({std::move(comm), std::chrono::steady_clock::now()});
  }
  // Frees those of old. Local.
  void free_old() {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    std::erase_if(kept_, [&](Entry& entry) {
      if (has_message(entry.comm.handle())) {
        entry.comm.leak();
        return true;
      }
      return now - entry.since > kLongEnough;
    });
  }

 private:
  static constexpr std::chrono::seconds kLongEnough{2};  // for a message that was sent before its receiver let go
  struct Entry {
    Communicator comm;
    std::chrono::steady_clock::time_point since;
  };

  static bool has_message(MPI_Comm comm) {
    int found = 0;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, MPI_STATUS_IGNORE), "MPI_Iprobe", comm);
    return found != 0;
  }

  std::mutex mutex_;
  std::vector<Entry> kept_;
};

Retired& retired() {
  static auto* retired = new Retired();  // never destroyed: MPI may be over by then
  return *retired;
}

}  // namespace

struct Team::Booth {
  Ballot mine, theirs;
};

Team::Team(Communicator origin)
    : origin_(std::move(origin)),
      name_(origin_.name()),
      rank_(origin_.rank()),
      size_(origin_.size()),
      tag_limit_(origin_.tag_upper_bound()) {
  open_channels();
}

std::shared_ptr<Team> Team::adopt(Communicator origin) {
  if (!origin.valid()) return nullptr;
  std::shared_ptr<Team> team(new Team(std::move(origin)));
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().teams, [](const auto& entry) { return entry.second.expired(); });
  team->id_ = registry().next++;
  registry().teams.emplace(team->id_, team);
  return team;
}

std::shared_ptr<Team> Team::find(std::int64_t id) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().teams.find(id);
  if (found != registry().teams.end()) {
    if (auto team = found->second.lock()) return team;
  }
  throw std::invalid_argument("weft: there is no communicator with number " + std::to_string(id) +
                              " in this process (freed, or from another process?)");
}

std::shared_ptr<Team> Team::over(const CommunicatorView& comm, const std::string& name) {
  return adopt(comm.dup(name));
}

std::shared_ptr<Team> Team::world() {
  static std::mutex mutex;
  static auto* world = new std::shared_ptr<Team>();
  const std::lock_guard lock(mutex);
  if (*world == nullptr) *world = over(CommunicatorView::world(), "world");
  return *world;
}

CommunicatorView Team::origin() const { return origin_; }
CommunicatorView Team::control() const { return control_; }
CommunicatorView Team::channel(Direction direction) const { return channels_[static_cast<std::size_t>(direction)]; }

CommunicatorView Team::reversed(Direction direction) {
  auto& slot = reversed_[static_cast<std::size_t>(direction)];
  if (!slot.valid()) slot = channel(direction).split(0, size_ - 1 - rank_);
  return slot;
}

void Team::open_channels() {
  retired().free_old();
  control_ = origin_.dup(name_ + ".control");
  channels_[0] = origin_.dup(name_ + ".forward");
  channels_[1] = origin_.dup(name_ + ".backward");
}

// Fresh duplicates of the origin under way; outlives a rebuild that timed out, because the other ranks' duplicates will
// meet the ones begun here.
struct Team::Rebuild {
  std::vector<Communicator> finished;
  std::shared_ptr<MPI_Comm> fresh;  // where MPI writes the next one when its request is done
  Request request;
};

// Channels that may hold unfinished traffic are given up, not freed. Freeing could wait for it; and MPI would hand what
// arrives later to the next communicator that gets the same number, where it stands in the way of other messages. A
// number is given again only when no rank of the new communicator holds it any more.
void Team::leak_channels() noexcept {
  control_.leak();
  for (auto& channel : channels_) channel.leak();
  for (auto& channel : reversed_) channel.leak();
}

void Team::begin_rebuild() {
  leak_channels();
  alarms_sent_.clear();
  agreements_ = {};
  rebuild_ = std::make_shared<Rebuild>();
}

void Team::rebuild() {
  if (rebuild_ == nullptr) begin_rebuild();
  while (rebuild_->finished.size() < 1 + channels_.size()) {
    auto& [finished, fresh, request] = *rebuild_;
    if (fresh == nullptr) {
      fresh = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
      request = Request(fresh);
      check(MPI_Comm_idup(origin_.handle(), fresh.get(), request.add()), "MPI_Comm_idup", origin_.handle());
    }
    request.wait({.operation = "rebuilding a team after a failure"});
    finished.push_back(Communicator::adopt(*fresh, name_));
    fresh.reset();
  }
  control_ = std::move(rebuild_->finished[0]);
  channels_[0] = std::move(rebuild_->finished[1]);
  channels_[1] = std::move(rebuild_->finished[2]);
  rebuild_.reset();
  broken_ = false;
}

void Team::close() noexcept {
  closed_ = true;
  if (may_have_messages_out()) leak_channels();
  if (size_ == 1) return;  // nobody to hear from: freed with the team
  retired().add(std::move(control_));
  for (auto& channel : channels_) retired().add(std::move(channel));
  for (auto& channel : reversed_) retired().add(std::move(channel));
}

void Team::enter() {
  if (closed_) throw Disagreement("weft: communicator '" + name_ + "' was freed; make a new one with split or dup");
  if (!Environment::alive()) throw MpiError("weft.MpiError: MPI is not running (finalised?)");
  if (size_ == 1) return;
  if (broken_) {
    rebuild();
  } else {
    // Twice: MPI may look first and make progress after, so that only the second look finds what came while this rank
    // computed. What both miss, the agreement finds (await_alarm).
    poll_alarm();
    poll_alarm();
  }
}

Outcome Team::agree(Direction direction, const Vote& vote) {
  if (size_ == 1) return outcome_of(ballot_of(0, vote));
  try {
    return exchange_votes(direction, vote);
  } catch (const TimeoutError& error) {
    raise_alarm(error.what());
    throw;
  }
}

// One round: this rank's ballot goes to the rank ahead, the one of the rank behind is merged into it. The memory
// belongs to the requests: a rank that gives up leaves its ballot on the way, for a rank that does not look MPI may not
// take it yet.
void Team::exchange_ballots(const std::shared_ptr<Booth>& booth, int reach, int tag) {
  const int ahead = (rank_ + reach) % size_;
  const int behind = (rank_ - reach + size_) % size_;
  const MPI_Comm comm = control_.handle();
  auto& [mine, theirs] = *booth;
  Request incoming(booth);
  Request outgoing(booth);
  check(MPI_Irecv(&theirs, sizeof theirs, MPI_BYTE, behind, tag, comm, incoming.add()), "MPI_Irecv", comm);
  check(MPI_Isend(&mine, sizeof mine, MPI_BYTE, ahead, tag, comm, outgoing.add()), "MPI_Isend", comm);
  incoming.wait({.operation = "agreement", .team = this, .explain = waiting_for, .subject = &behind});
  outgoing.wait({.operation = "agreement", .team = this, .explain = waiting_for, .subject = &ahead});
  if (theirs.number != mine.number) {
    throw MpiError("weft.MpiError: rank " + std::to_string(rank_) + " is at agreement " + std::to_string(mine.number) +
                   " of '" + name_ + "', rank " + std::to_string(behind) + " at " + std::to_string(theirs.number) +
                   ": two threads use one communicator at the same time?");
  }
  mine.merge(theirs);
}

Outcome Team::exchange_votes(Direction direction, const Vote& vote) {
  const auto which = static_cast<std::size_t>(direction);
  const auto booth = std::make_shared<Booth>(Booth{ballot_of(agreements_[which]++, vote), {}});
  int tag = static_cast<int>(which) * kRounds;
  for (int reach = 1; reach < size_; reach *= 2, ++tag) exchange_ballots(booth, reach, tag);
  if (wall_clock_ms() >= booth->mine.gives_up_ms) await_alarm();
  settled_transfers_ = transfers_;
  return outcome_of(booth->mine);
}

void Team::disagree(const std::string& mine) {
  const BlockingScope blocking;
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<std::size_t>(size_));
  std::vector<int> starts(lengths.size());
  const MPI_Comm comm = control_.handle();
  check(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm), "MPI_Allgather", comm);
  int total = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    starts[i] = total;
    total += lengths[i];
  }
  std::string all(static_cast<std::size_t>(total), ' ');
  check(MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR, comm),
        "MPI_Allgatherv", comm);
  std::map<std::string, std::string> ranks_by_text;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    auto& ranks = ranks_by_text[all.substr(static_cast<std::size_t>(starts[i]), static_cast<std::size_t>(lengths[i]))];
    ranks += (ranks.empty() ? "rank " : ", ") + std::to_string(i);
  }
  std::string text = "weft: the ranks of communicator '" + name_ + "' do not agree on an operation, nothing was sent:";
  for (const auto& [said, ranks] : ranks_by_text) text += "\n  " + ranks + ": " + said;
  throw Disagreement(text);
}

void Team::raise_alarm(const std::string& cause) noexcept {
  if (closed_ || broken_ || size_ == 1 || !Environment::alive()) return;
  broken_ = true;
  try {
    const auto text = std::make_shared<std::string>(cause);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      Request& request = alarms_sent_.emplace_back(text);
      check(MPI_Isend(text->data(), static_cast<int>(text->size()), MPI_CHAR, peer, kAlarmTag, control_.handle(),
                      request.add()),
            "MPI_Isend", control_.handle());
      static_cast<void>(request.test());
    }
  } catch (const std::exception&) {
    // The peers then time out and say so; there is nothing better to do for them here.
  }
}

void Team::poll_alarm() {
  int found = 0;
  MPI_Status status;
  const MPI_Comm comm = control_.handle();
  check(MPI_Iprobe(MPI_ANY_SOURCE, kAlarmTag, comm, &found, &status), "MPI_Iprobe", comm);
  if (found == 0) return;
  int length = 0;
  check(MPI_Get_count(&status, MPI_CHAR, &length), "MPI_Get_count", comm);
  std::string text(static_cast<std::size_t>(length), ' ');
  check(MPI_Recv(text.data(), length, MPI_CHAR, status.MPI_SOURCE, kAlarmTag, comm, MPI_STATUS_IGNORE), "MPI_Recv",
        comm);
  broken_ = true;
  throw PeerLost(status.MPI_SOURCE, text + " (noticed in " + current_operation() + ")");
}

void Team::await_alarm() {
  // A rank that waits looks at its clock whenever it has its core, so its alarm is on its way by now or never will be.
  constexpr std::chrono::milliseconds kLooking{500};
  const auto end = std::chrono::steady_clock::now() + kLooking;
  while (std::chrono::steady_clock::now() < end) {
    poll_alarm();
    sched_yield();
  }
}

int Team::transfer_tag(std::int64_t transfer) const noexcept {
  return kFirstTransferTag + static_cast<int>(transfer % (tag_limit_ - kFirstTransferTag));
}

void raise_alarm_everywhere(const std::string& cause) noexcept {
  const std::lock_guard lock(registry().mutex);
  for (const auto& [id, entry] : registry().teams) {
    if (const auto team = entry.lock()) team->raise_alarm(cause);
  }
}

}  // namespace weft::mpi
