#include "weft/mpi/communicator.h"

#include <cstring>
#include <map>
#include <stdexcept>

#include "weft/mpi/closing.h"
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

// An alarm message consists of this header and the cause.
struct AlarmHeader {
  std::array<std::uint64_t, 2> completed;  // agreements of this communicator that the failed rank completed
  bool terminates;
};

}  // namespace

struct Communicator::ReceivedAlarm {
  int source;
  AlarmHeader header;
  std::string cause;
};

Communicator::Communicator(UniqueComm origin)
    : origin_(std::move(origin)),
      contacts_(static_cast<std::size_t>(origin_.size())),
      name_(origin_.name()),
      rank_(origin_.rank()),
      size_(origin_.size()),
      tag_limit_(origin_.tag_upper_bound()) {
  open_channels();
}

Communicator::~Communicator() { close(); }

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
CommView Communicator::control() const { return open_channel(kControl); }
CommView Communicator::messages() const { return open_channel(kMessages); }
CommView Communicator::channel(Direction direction) const { return open_channel(static_cast<std::size_t>(direction)); }

CommView Communicator::open_channel(std::size_t channel) const {
  require_open();  // MPI would abort the job
  return channels_[channel];
}

CommView Communicator::reversed(Direction direction) {
  auto& slot = reversed_[static_cast<std::size_t>(direction)];
  if (!slot.valid()) slot = channel(direction).split(0, size_ - 1 - rank_);
  return slot;
}

void Communicator::open_channels() {
  advance_closing();
  constexpr std::array<const char*, kChannels> kNames{".forward", ".backward", ".control", ".messages"};
  for (std::size_t i = 0; i < kChannels; ++i) channels_[i] = origin_.dup(name_ + kNames[i]);
}

// New duplicates of the origin, some of them still in progress. Survives a rebuild that timed out, because the
// duplicates of the other ranks will match the ones started here.
struct Communicator::Rebuild {
  std::vector<UniqueComm> finished;
  std::shared_ptr<MPI_Comm> fresh;  // MPI writes the next duplicate here when `request` completes
  Request request;
};

// After a failure, the channels may hold unfinished agreements and collectives, which cannot be drained. They are
// leaked, not freed: MPI_Comm_free could wait for the messages, and MPI would deliver later ones to the next
// communicator with the same context id. MPI reuses a context id only when no rank of the new communicator holds it.
void Communicator::leak_channels() noexcept {
  for (auto& channel : channels_) channel.leak();
  for (auto& channel : reversed_) channel.leak();
}

void Communicator::begin_rebuild() {
  const std::lock_guard lock(alarm_mutex_);
  leak_channels();
  alarms_sent_.clear();
  deferred_alarm_.reset();
  agreements_ = {};
  for (auto& count : completed_) count = 0;
  rebuild_ = std::make_shared<Rebuild>();
}

void Communicator::rebuild() {
  if (rebuild_ == nullptr) begin_rebuild();
  while (rebuild_->finished.size() < channels_.size()) {
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
  std::move(rebuild_->finished.begin(), rebuild_->finished.end(), channels_.begin());
  rebuild_.reset();
  broken_ = false;
}

void Communicator::close() noexcept {
  if (closed_) return;
  closed_ = true;
  if (broken_) return leak_channels();
  ClosedChannels closed;
  for (const auto channel : {kControl, kMessages, kForward, kBackward}) {
    closed.channels.push_back(std::move(channels_[channel]));
  }
  for (UniqueComm& comm : reversed_) closed.idle.push_back(std::move(comm));
  for (int rank = 0; rank < size_; ++rank) {
    if (contacts_[static_cast<std::size_t>(rank)]) closed.contacts.push_back(rank);
  }
  close_channels(std::move(closed));
}

void Communicator::require_open() const {
  if (closed_) throw Disagreement("weft: communicator '" + name_ + "' was freed; create a new one with split or dup");
}

void Communicator::enter() {
  require_open();
  if (!Environment::alive())
    throw MpiError(
        "weft.MpiError: MPI is not running in this process; was it finalised, or is this a child of fork()?");
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

void Communicator::raise_alarm(const std::string& cause, std::int64_t informed) noexcept {
  if (closed_ || broken_ || size_ == 1) return;
  raise_alarm_everywhere({cause}, informed);
}

void Communicator::send_alarm(const Alarm& alarm) noexcept {
  const std::lock_guard lock(alarm_mutex_);
  if (closed_ || broken_ || size_ == 1) return;
  broken_ = true;
  try {
    const AlarmHeader header{{completed_[0], completed_[1]}, alarm.terminates};
    const auto message = std::make_shared<std::string>(sizeof header, '\0');
    std::memcpy(message->data(), &header, sizeof header);
    *message += alarm.cause;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      Request& request = alarms_sent_.emplace_back(message);
      check(MPI_Isend(message->data(), static_cast<int>(message->size()), MPI_CHAR, peer, kAlarmTag, control().handle(),
                      request.add()),
            "MPI_Isend", control().handle());
      static_cast<void>(request.test());
    }
  } catch (const std::exception&) {
    // The alarm cannot be sent; the peers will time out.
  }
}

std::optional<Communicator::ReceivedAlarm> Communicator::receive_alarm() const {
  int found = 0;
  MPI_Status status;
  const MPI_Comm comm = control().handle();
  check(MPI_Iprobe(MPI_ANY_SOURCE, kAlarmTag, comm, &found, &status), "MPI_Iprobe", comm);
  if (found == 0) return std::nullopt;
  int length = 0;
  check(MPI_Get_count(&status, MPI_CHAR, &length), "MPI_Get_count", comm);
  std::string message(static_cast<std::size_t>(length), ' ');
  check(MPI_Recv(message.data(), length, MPI_CHAR, status.MPI_SOURCE, kAlarmTag, comm, MPI_STATUS_IGNORE), "MPI_Recv",
        comm);
  ReceivedAlarm alarm{status.MPI_SOURCE, {}, message.substr(sizeof(AlarmHeader))};
  std::memcpy(&alarm.header, message.data(), sizeof alarm.header);
  return alarm;
}

void Communicator::poll_alarm() {
  std::optional<ReceivedAlarm> alarm;
  if (deferred_alarm_ != nullptr && !agreeing_) {
    alarm = std::move(*deferred_alarm_);
  } else {
    alarm = receive_alarm();
    if (!alarm) return;
    // All ranks have entered an agreement that one rank has completed, so it ends on all ranks.
    if (agreeing_) {
      const auto direction = static_cast<std::size_t>(*agreeing_);
      if (alarm->header.completed[direction] >= agreements_[direction]) {
        deferred_alarm_ = std::make_unique<ReceivedAlarm>(std::move(*alarm));
        return;
      }
    }
  }
  broken_ = true;
  // Other ranks may wait for operations that this one will not reach.
  raise_alarm_everywhere({"rank " + std::to_string(alarm->source) + " of '" + name_ + "' failed: " + alarm->cause,
                          alarm->header.terminates});
  throw PeerLost(alarm->source, alarm->cause + " (noticed in " + current_operation() + ")", alarm->header.terminates);
}

int Communicator::transfer_tag(std::int64_t transfer) const noexcept {
  return kFirstTransferTag + static_cast<int>(transfer % (tag_limit_ - kFirstTransferTag));
}

void raise_alarm_everywhere(const Alarm& alarm, std::int64_t informed) noexcept {
  if (!Environment::alive()) return;
  std::vector<std::shared_ptr<Communicator>> open;  // released after the lock
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& [id, entry] : registry().communicators) {
      if (id != informed) open.push_back(entry.lock());
    }
  }
  for (const auto& communicator : open) {
    if (communicator) communicator->send_alarm(alarm);
  }
}

}  // namespace weft::mpi
