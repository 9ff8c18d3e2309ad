#include "weft/process_group/mpi/rendezvous.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>

#include "weft/mpi/communicator.h"
#include "weft/mpi/error.h"
#include "weft/mpi/waiter.h"

namespace weft::process_group {
namespace {

constexpr const char* kComplete = "complete";

// One meeting. The store decides its outcome, and only once: the last rank to arrive writes kComplete, and a rank that
// gives up writes the reason. The first of them wins.
class Meeting {
 public:
  Meeting(c10d::Store& store, const std::vector<int>& ranks) : store_(store), ranks_(ranks) {
    // A store may outlive its group, and torch gives the next group the same keys: meetings are numbered.
    const std::int64_t number = store_.add("weft/meetings/" + std::to_string(mine()), 1);
    prefix_ = "weft/meeting/" + std::to_string(number) + "/";
  }

  void arrive() {
    store_.set(key_of(mine()), std::string("1"));
    if (store_.add(prefix_ + "arrived", 1) == std::ssize(ranks_)) decide(kComplete);
  }
  [[nodiscard]] bool decided() { return store_.check({prefix_ + "outcome"}); }
  [[nodiscard]] std::string outcome() { return store_.get_to_str(prefix_ + "outcome"); }
  void decide(const std::string& outcome) { store_.compareSet(prefix_ + "outcome", std::string(), outcome); }

  // "rank 1", "ranks 1, 3".
  [[nodiscard]] std::string missing() {
    std::string text;
    int count = 0;
    for (const int rank : ranks_) {
      if (store_.check({key_of(rank)})) continue;
      text += (count++ == 0 ? "" : ", ") + std::to_string(rank);
    }
    return (count == 1 ? "rank " : "ranks ") + text;
  }

 private:
  [[nodiscard]] static int mine() { return mpi::CommView::world().rank(); }
  [[nodiscard]] std::string key_of(int rank) const { return prefix_ + std::to_string(rank); }

  c10d::Store& store_;
  const std::vector<int>& ranks_;
  std::string prefix_;
};

void await_outcome(Meeting& meeting, std::chrono::milliseconds timeout) {
  constexpr std::chrono::microseconds kLongestPause{20'000};  // every check is a message to the store
  std::chrono::microseconds pause{100};
  mpi::Waiter waiter({.operation = "creating a process group",
                      .communicator = Communicator::world().get(),
                      .timeout = std::max(timeout, std::chrono::milliseconds(1))});
  while (!meeting.decided()) {
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
    waiter.idle();
  }
}

}  // namespace

void await_members(c10d::Store& store, const std::vector<int>& ranks, const std::string& name,
                   std::chrono::milliseconds timeout) {
  if (ranks.size() == 1) return;
  const mpi::OperationScope operation("creating a process group", nullptr);
  Meeting meeting(store, ranks);
  meeting.arrive();
  const std::string me = "rank " + std::to_string(mpi::CommView::world().rank());
  try {
    await_outcome(meeting, timeout);
  } catch (const mpi::TimeoutError&) {
    meeting.decide(me + " waited " + std::to_string(static_cast<double>(timeout.count()) / 1000) + " s for " +
                   meeting.missing() + ", which did not create the group in time; all its ranks must call new_group " +
                   "within the group's timeout");
  } catch (...) {
    meeting.decide(me + " failed while it waited for " + meeting.missing());
    throw;
  }
  const std::string outcome = meeting.outcome();
  TORCH_CHECK_WITH(DistBackendError, outcome == kComplete, "weft: process group '", name,
                   "' was not created: ", outcome);
}

}  // namespace weft::process_group
