#include "weft/mpi/communicator.h"

#include <chrono>
#include <map>
#include <stdexcept>

#include "weft/mpi/control_tags.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

// The communicators of this process by number. Numbers are never reused.
struct Registry {
  std::mutex mutex;
  std::map<std::int64_t, std::weak_ptr<Communicator>> communicators;
  std::int64_t next = 0;
};

Registry& registry() {
  static auto* registry = new Registry();
  return *registry;
}

// MPI communicators that are no longer used but not freed yet. An alarm of a peer may still be in flight to them. If
// they were freed at once, MPI could reuse their context ids for communicators that do not include that peer. They are
// therefore kept for a while, and leaked if a message did arrive.
class RetiredComms {
 public:
  void add(UniqueComm comm) {
    const std::lock_guard lock(mutex_);
    if (comm.valid()) kept_.push_back({std::move(comm), std::chrono::steady_clock::now()});
  }
  // Local. Frees the communicators that were retired long enough ago.
  void free_old() {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    std::erase_if(kept_, [&](Entry& entry) {
      if (has_message(entry.comm.handle())) {
        entry.comm.leak();
        return true;
      }
      return now - entry.since > kDelay;
    });
  }

 private:
  static constexpr std::chrono::seconds kDelay{2};  // longer than a message is in flight
  struct Entry {
    UniqueComm comm;
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

RetiredComms& retired() {
  static auto* retired = new RetiredComms();  // never destroyed: MPI may be finalised by then
  return *retired;
}

}  // namespace

Communicator::Communicator(UniqueComm origin)
    : origin_(std::move(origin)),
      name_(origin_.name()),
      rank_(origin_.rank()),
      size_(origin_.size()),
      tag_limit_(origin_.tag_upper_bound()) {
  open_channels();
}

std::shared_ptr<Communicator> Communicator::adopt(UniqueComm origin) {
  if (!origin.valid()) return nullptr;
  std::shared_ptr<Communicator> communicator(new Communicator(std::move(origin)));
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().communicators, [](const auto& entry) { return entry.second.expired(); });
  communicator->id_ = registry().next++;
  registry().communicators.emplace(communicator->id_, communicator);
  return communicator;
}

std::shared_ptr<Communicator> Communicator::find(std::int64_t id) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().communicators.find(id);
  if (found != registry().communicators.end()) {
    if (auto communicator = found->second.lock()) return communicator;
  }
  throw std::invalid_argument("weft: no communicator with number " + std::to_string(id) +
                              " exists in this process; it was freed or belongs to another process");
}

std::shared_ptr<Communicator> Communicator::over(const CommView& comm, const std::string& name) {
  return adopt(comm.dup(name));
}

std::shared_ptr<Communicator> Communicator::world() {
  static std::mutex mutex;
  static auto* world = new std::shared_ptr<Communicator>();
  const std::lock_guard lock(mutex);
  if (*world == nullptr) *world = over(CommView::world(), "world");
  return *world;
}

CommView Communicator::origin() const { return origin_; }
CommView Communicator::control() const { return control_; }
CommView Communicator::channel(Direction direction) const { return channels_[static_cast<std::size_t>(direction)]; }

CommView Communicator::reversed(Direction direction) {
  auto& slot = reversed_[static_cast<std::size_t>(direction)];
  if (!slot.valid()) slot = channel(direction).split(0, size_ - 1 - rank_);
  return slot;
}

void Communicator::open_channels() {
  retired().free_old();
  control_ = origin_.dup(name_ + ".control");
  channels_[0] = origin_.dup(name_ + ".forward");
  channels_[1] = origin_.dup(name_ + ".backward");
}

// New duplicates of the origin, some of them still in progress. Survives a rebuild that timed out, because the
// duplicates of the other ranks will match the ones started here.
struct Communicator::Rebuild {
  std::vector<UniqueComm> finished;
  std::shared_ptr<MPI_Comm> fresh;  // MPI writes the next duplicate here when `request` completes
  Request request;
};

// Channels that may hold unfinished messages are leaked, not freed. MPI_Comm_free could wait for the messages. MPI
// would also deliver later messages to the next communicator with the same context id, where they block others. MPI
// reuses a context id only when no rank of the new communicator holds it.
void Communicator::leak_channels() noexcept {
  control_.leak();
  for (auto& channel : channels_) channel.leak();
  for (auto& channel : reversed_) channel.leak();
}

void Communicator::begin_rebuild() {
  leak_channels();
  alarms_sent_.clear();
  agreements_ = {};
  rebuild_ = std::make_shared<Rebuild>();
}

void Communicator::rebuild() {
  if (rebuild_ == nullptr) begin_rebuild();
  while (rebuild_->finished.size() < 1 + channels_.size()) {
    auto& [finished, fresh, request] = *rebuild_;
    if (fresh == nullptr) {
      fresh = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
      request = Request(fresh);
      check(MPI_Comm_idup(origin_.handle(), fresh.get(), request.add()), "MPI_Comm_idup", origin_.handle());
    }
    request.wait({.operation = "rebuilding a communicator after a failure"});
    finished.push_back(UniqueComm::adopt(*fresh, name_));
    fresh.reset();
  }
  control_ = std::move(rebuild_->finished[0]);
  channels_[0] = std::move(rebuild_->finished[1]);
  channels_[1] = std::move(rebuild_->finished[2]);
  rebuild_.reset();
  broken_ = false;
}

void Communicator::close() noexcept {
  closed_ = true;
  if (may_have_messages_in_flight()) leak_channels();
  if (size_ == 1) return;  // no peers, so no late alarms: the destructor frees the channels
  retired().add(std::move(control_));
  for (auto& channel : channels_) retired().add(std::move(channel));
  for (auto& channel : reversed_) retired().add(std::move(channel));
}

void Communicator::enter() {
  if (closed_) throw Disagreement("weft: communicator '" + name_ + "' was freed; create a new one with split or dup");
  if (!Environment::alive()) throw MpiError("weft.MpiError: MPI is not running; was it finalised?");
  if (size_ == 1) return;
  if (broken_) {
    rebuild();
  } else {
    // Polls twice: MPI may probe before it makes progress, and then only the second probe finds an alarm that arrived
    // while this rank computed. The agreement detects alarms that both miss (await_alarm in agreement.cpp).
    poll_alarm();
    poll_alarm();
  }
}

void Communicator::raise_alarm(const std::string& cause) noexcept {
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
    // The alarm cannot be sent; the peers will time out.
  }
}

void Communicator::poll_alarm() {
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

int Communicator::transfer_tag(std::int64_t transfer) const noexcept {
  return kFirstTransferTag + static_cast<int>(transfer % (tag_limit_ - kFirstTransferTag));
}

void raise_alarm_everywhere(const std::string& cause) noexcept {
  const std::lock_guard lock(registry().mutex);
  for (const auto& [id, entry] : registry().communicators) {
    if (const auto communicator = entry.lock()) communicator->raise_alarm(cause);
  }
}

}  // namespace weft::mpi
