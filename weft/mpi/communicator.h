// Communicator: a group of ranks with separate channels for forward, backward, control and the application's messages.
//
// Before an operation communicates, its ranks agree (weft/mpi/agreement.h). One short exchange compares the operation
// and its arguments, reports failed checks and collects the requests for gradients. That exchange can time out and be
// interrupted. Afterwards every rank is inside the operation, so the payload can use MPI's fast blocking calls.
// A rank that fails elsewhere raises an alarm, which interrupts the waits of its peers.
//
// Ownership: CommView borrows an MPI_Comm and UniqueComm owns one (weft/mpi/comm.h). A Communicator owns five or more
// of them and is held by CommunicatorPtr. Use Communicator for operations, and the others inside weft/mpi.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/mpi/agreement.h"
#include "weft/mpi/comm.h"
#include "weft/mpi/error.h"
#include "weft/mpi/request.h"

namespace weft::mpi {

enum class Direction : std::int8_t { kForward = 0, kBackward = 1 };

struct Alarm {
  std::string cause;
  bool terminates = false;  // the process of the failed rank ends; otherwise the job may continue
};

// A number that no communicator has.
inline constexpr std::int64_t kNoCommunicator = -1;

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Collective. Duplicates `comm`, so that messages of its other users cannot interfere.
  [[nodiscard]] static std::shared_ptr<Communicator> over(const CommView& comm, const std::string& name = "");
  // Collective. Takes ownership of `origin`, which must have no other user. Returns null if `origin` is invalid.
  [[nodiscard]] static std::shared_ptr<Communicator> adopt(UniqueComm origin);
  // The communicator of MPI_COMM_WORLD. Collective at the first call, which creates it.
  [[nodiscard]] static std::shared_ptr<Communicator> world();

  // Calls close().
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Returns the open communicator with this number. Throws std::invalid_argument if it does not exist.
  [[nodiscard]] static std::shared_ptr<Communicator> find(std::int64_t id);

  // A small number that identifies the communicator in this process, for callers that cannot hold a pointer.
  [[nodiscard]] std::int64_t id() const noexcept { return id_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // The MPI communicator that this one was made from, for split, cart and topology queries. Carries no messages.
  [[nodiscard]] CommView origin() const;
  // The channels throw Disagreement if the communicator is closed. Operations of the library use channel(), and only
  // the application's messages use messages(), because a receive with any tag matches every message of its channel.
  [[nodiscard]] CommView channel(Direction direction) const;
  [[nodiscard]] CommView control() const;
  [[nodiscard]] CommView messages() const;
  // The same ranks in reverse order, for suffix scans. Collective at the first call per direction.
  [[nodiscard]] CommView reversed(Direction direction);

  // Closes the communicator: later operations throw. Collective by convention, like MPI_Comm_free, but does not wait
  // for the other ranks. Messages that were not received are dropped, and MPI's memory is freed when all ranks have
  // closed the communicator (weft/mpi/closing.h).
  void close() noexcept;
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  // Throws Disagreement if the communicator is closed.
  void require_open() const;

  // Every operation calls this first. Throws if the communicator is closed or a peer raised an alarm. After a failure
  // it rebuilds the channels and is collective.
  void enter();

  // Collective. Compares the inputs of all ranks; see the head of this file. Costs nothing on one rank.
  // Throws TimeoutError after Options::timeout, and PeerLost if a peer raised an alarm.
  [[nodiscard]] AgreementResult agree(Direction direction, const AgreementInput& input);

  // Notifies the ranks of all communicators of this process that this rank failed: they may wait for operations that it
  // will not reach. They throw PeerLost in their current wait or next operation, and pass the alarm on. The next
  // operation of every rank then uses new channels. Skips the communicator with the number `informed`, whose ranks know
  // of the failure. Does nothing if this communicator has one rank or was alarmed before. Never throws.
  void raise_alarm(const std::string& cause, std::int64_t informed = kNoCommunicator) noexcept;
  // Throws PeerLost if another rank raised an alarm, after passing it on. During an agreement that the failed rank has
  // completed, it defers the alarm: the other ranks may be in the operation already and wait for this one.
  void poll_alarm();

  // Call it before sending a message that `dest` might never receive: close() then ensures that it is dropped.
  void add_contact(int dest) noexcept { contacts_[static_cast<std::size_t>(dest)] = true; }
  // A number that is unique among the messages that this rank sends in this communicator.
  [[nodiscard]] std::int64_t next_transfer() noexcept { return transfers_.fetch_add(1); }
  // Maps a transfer number to a tag that this MPI allows and that the control channel does not use otherwise.
  [[nodiscard]] int transfer_tag(std::int64_t transfer) const noexcept;

 private:
  explicit Communicator(UniqueComm origin);
  // kForward and kBackward are the values of Direction.
  enum Channel : std::size_t { kForward, kBackward, kControl, kMessages, kChannels };
  void open_channels();
  void leak_channels() noexcept;
  [[nodiscard]] CommView open_channel(std::size_t channel) const;
  struct Rebuild;
  void begin_rebuild();
  void rebuild();
  void send_alarm(const Alarm& alarm) noexcept;
  struct ReceivedAlarm;
  [[nodiscard]] std::optional<ReceivedAlarm> receive_alarm() const;
  friend void raise_alarm_everywhere(const Alarm& alarm, std::int64_t informed) noexcept;

  UniqueComm origin_;
  std::array<UniqueComm, kChannels> channels_;
  std::array<UniqueComm, 2> reversed_;
  std::array<std::uint64_t, 2> agreements_{};              // started agreements by direction
  std::array<std::atomic<std::uint64_t>, 2> completed_{};  // completed ones
  std::optional<Direction> agreeing_;                      // the direction of an agreement in progress
  std::unique_ptr<ReceivedAlarm> deferred_alarm_;          // poll_alarm() throws it after the agreement
  std::mutex alarm_mutex_;  // an alarm may come from a thread that uses another communicator
  std::vector<Request> alarms_sent_;
  std::shared_ptr<Rebuild> rebuild_;  // null unless a rebuild is in progress
  std::atomic<std::int64_t> transfers_{0};
  std::vector<std::atomic<bool>> contacts_;  // by rank
  std::string name_;
  std::int64_t id_ = kNoCommunicator;
  int rank_;
  int size_;
  int tag_limit_;
  std::atomic<bool> broken_ = false;
  bool closed_ = false;
};

// Raises an alarm on every open communicator except `informed`.
void raise_alarm_everywhere(const Alarm& alarm, std::int64_t informed = kNoCommunicator) noexcept;

// Runs `wait`. If it times out or is interrupted, raises an alarm first: otherwise the peers would wait as long again.
template <class Wait>
decltype(auto) alarm_on_timeout(Communicator& communicator, Wait&& wait) {
  try {
    return wait();
  } catch (const TimeoutError& error) {
    communicator.raise_alarm(error.what());
    throw;
  } catch (const Interrupted&) {
    communicator.raise_alarm("a signal interrupted its wait");
    throw;
  }
}

// Operations in flight share ownership, so the communicator stays open until they finish.
using CommunicatorPtr = std::shared_ptr<Communicator>;

}  // namespace weft::mpi

namespace weft {
using mpi::Communicator;
using mpi::CommunicatorPtr;
}  // namespace weft
