#include "weft/mpi/closing.h"

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "weft/mpi/control_tags.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"
#include "weft/mpi/request.h"

namespace weft::mpi {
namespace {

class Closing {
 public:
  explicit Closing(ClosedChannels closed)
      : channels_(std::move(closed.channels)), idle_(std::move(closed.idle)), contacts_(std::move(closed.contacts)) {}

  // Returns true when the object can be destroyed, which frees the channels.
  [[nodiscard]] bool advance() {
    send_farewells();
    for (const UniqueComm& channel : channels_) {
      if (!drop_messages(channel)) return false;
    }
    if (alarmed_) {
      leak();
      return true;
    }
    return unconfirmed_ == 0 && pass_barrier() && sent_.test();
  }

  void leak() noexcept {
    for (auto* comms : {&channels_, &idle_}) {
      for (UniqueComm& comm : *comms) comm.leak();
    }
  }

 private:
  [[nodiscard]] const UniqueComm& control() const noexcept { return channels_.front(); }

  void send(int dest, int tag, const CommView& channel) {
    check(MPI_Isend(nullptr, 0, MPI_BYTE, dest, tag, channel.handle(), sent_.add()), "MPI_Isend", channel.handle());
  }

  void send_farewells() {
    for (const int contact : std::exchange(contacts_, {})) {
      for (const UniqueComm& channel : channels_) send(contact, kFarewellTag, channel);
      unconfirmed_ += channels_.size();
    }
  }

  // Returns false if a message is still being received.
  [[nodiscard]] bool drop_messages(const CommView& channel) {
    while (dropped_.test()) {
      int found = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      check(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, channel.handle(), &found, &message, &status), "MPI_Improbe",
            channel.handle());
      if (found == 0) return true;
      drop(message, status, channel);
    }
    return false;
  }

  void drop(MPI_Message message, const MPI_Status& status, const CommView& channel) {
    int bytes = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count", channel.handle());
    if (bytes < 0) throw MpiError("weft.MpiError: a message is too large to be dropped");  // MPI_UNDEFINED
    const auto memory = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytes));
    dropped_ = Request(memory);
    check(MPI_Imrecv(memory->data(), bytes, MPI_BYTE, &message, dropped_.add()), "MPI_Imrecv", channel.handle());
    // An application's message may have the tag of a farewell, but is never empty.
    if (status.MPI_TAG == kFarewellTag && bytes == 0) return send(status.MPI_SOURCE, kFarewellReceivedTag, control());
    if (channel.handle() == control().handle()) note(status.MPI_TAG);
  }

  void note(int tag) noexcept {
    if (tag == kAlarmTag) alarmed_ = true;
    if (tag == kFarewellReceivedTag) --unconfirmed_;
    if (tag >= kClosingRoundTag && tag < kClosingRoundTag + kAgreementRounds) {
      rounds_received_ |= std::uint64_t{1} << (tag - kClosingRoundTag);
    }
  }

  // A dissemination barrier, like an agreement. Returns true when it is complete.
  [[nodiscard]] bool pass_barrier() {
    const int size = control().size();
    for (; (std::int64_t{1} << round_) < size; ++round_, round_sent_ = false) {
      const std::int64_t distance = std::int64_t{1} << round_;
      if (!round_sent_)
        send(static_cast<int>((control().rank() + distance) % size), kClosingRoundTag + round_, control());
      round_sent_ = true;
      if ((rounds_received_ >> round_ & 1U) == 0) return false;
    }
    return true;
  }

  std::vector<UniqueComm> channels_;
  std::vector<UniqueComm> idle_;
  std::vector<int> contacts_;    // ranks that get a farewell
  std::size_t unconfirmed_ = 0;  // farewells
  std::uint64_t rounds_received_ = 0;
  int round_ = 0;
  bool round_sent_ = false;
  bool alarmed_ = false;
  Request sent_;
  Request dropped_;  // the last message that drop() received
};

struct ClosingList {
  std::mutex mutex;
  std::list<Closing> list;
};

ClosingList& closing_list() {
  static auto* list = new ClosingList();  // never destroyed: MPI may be finalised by then
  return *list;
}

// Returns true if the object is no longer needed. Channels in an unknown state are leaked.
bool finished(Closing& closing) noexcept {
  try {
    return closing.advance();
  } catch (const std::exception&) {
    closing.leak();
    return true;
  }
}

}  // namespace

void close_channels(ClosedChannels closed) noexcept {
  if (closed.channels.empty() || !Environment::alive()) return;
  {
    const std::lock_guard lock(closing_list().mutex);
    closing_list().list.emplace_back(std::move(closed));
  }
  advance_closing();
}

void advance_closing() noexcept {
  if (!Environment::alive()) return;
  const std::lock_guard lock(closing_list().mutex);
  std::erase_if(closing_list().list, finished);
}

std::size_t closing_count() {
  advance_closing();
  const std::lock_guard lock(closing_list().mutex);
  return closing_list().list.size();
}

}  // namespace weft::mpi
