#include "weft/control/meetings.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace weft::control {
namespace {

constexpr std::uint32_t kMostWorkers = 65535;

}  // namespace

Meetings::Ticket Meetings::barrier(const std::string& job, std::uint32_t workers, Answered answered) {
  return enter({{job, false}, workers, 0, 0, 0, std::move(answered)});
}

Meetings::Ticket Meetings::broadcast(const std::string& job, std::uint32_t workers, std::uint32_t rank,
                                     std::uint32_t root, std::uint64_t value, Answered answered) {
  return enter({{job, true}, workers, rank, root, value, std::move(answered)});
}

// Why a call cannot be let in; empty if it can.
std::string Meetings::objection(const Call& call) const {
  if (call.workers < 1 || call.workers > kMostWorkers) {
    return "num_workers must be from 1 to 65535, got " + std::to_string(call.workers);
  }
  if (call.rank >= call.workers || call.root >= call.workers) {
    return "rank and root must be below num_workers, which is " + std::to_string(call.workers) + "; got " +
           std::to_string(call.rank) + " and " + std::to_string(call.root);
  }
  if (waiting_ >= capacity_) return "too many workers wait at this switch already";
  const auto found = rounds_.find(call.name);
  if (found == rounds_.end() || found->second.guests.empty()) return "";
  const Round& round = found->second;
  if (round.workers != call.workers || round.root != call.root) {
    return "other workers of this job wait for " + std::to_string(round.workers) + " workers and root " +
           std::to_string(round.root) + ", this one for " + std::to_string(call.workers) + " and " +
           std::to_string(call.root);
  }
  return "";
}

Meetings::Ticket Meetings::enter(Call call) {
  std::vector<Guest> leaving;
  std::vector<Guest> replaced;
  Answer answer;
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = ++tickets_;
    answer.reason = objection(call);
    if (!answer.reason.empty()) {
      leaving.push_back({ticket, call.rank, std::move(call.answered)});
    } else {
      Round& round = rounds_[call.name];
      round.workers = call.workers;
      round.root = call.root;
      if (call.rank == call.root) round.value = call.value;
      const auto others = std::stable_partition(round.guests.begin(), round.guests.end(), [&](const Guest& guest) {
        return !call.name.second || guest.rank != call.rank;
      });
      replaced.assign(std::make_move_iterator(others), std::make_move_iterator(round.guests.end()));
      round.guests.erase(others, round.guests.end());
      waiting_ -= replaced.size();
      round.guests.push_back({ticket, call.rank, std::move(call.answered)});
      ++waiting_;
      if (round.guests.size() == round.workers) {
        answer = {true, round.value, ""};
        waiting_ -= round.guests.size();
        leaving = std::move(round.guests);
        rounds_.erase(call.name);
      }
    }
  }
  for (const Guest& guest : replaced) guest.answered({false, 0, "this rank called again, which took its place"});
  for (const Guest& guest : leaving) guest.answered(answer);
  return ticket;
}

void Meetings::leave(Ticket ticket) {
  Answered released;  // destroyed without the lock: it may own the call
  const std::lock_guard lock(mutex_);
  for (auto entry = rounds_.begin(); entry != rounds_.end(); ++entry) {
    auto& guests = entry->second.guests;
    const auto guest = std::find_if(guests.begin(), guests.end(), [&](const Guest& g) { return g.ticket == ticket; });
    if (guest == guests.end()) continue;
    released = std::move(guest->answered);
    guests.erase(guest);
    --waiting_;
    if (guests.empty()) rounds_.erase(entry);
    return;
  }
}

void Meetings::give_up(const std::string& reason) {
  std::map<Name, Round> rounds;
  {
    const std::lock_guard lock(mutex_);
    rounds = std::exchange(rounds_, {});
    waiting_ = 0;
  }
  for (const auto& [name, round] : rounds) {
    for (const Guest& guest : round.guests) guest.answered({false, 0, reason});
  }
}

std::size_t Meetings::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

}  // namespace weft::control
