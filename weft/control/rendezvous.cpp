#include "weft/control/rendezvous.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace weft::control {

Rendezvous::Ticket Rendezvous::barrier(const std::string& job, std::uint32_t workers, OnAnswer on_answer) {
  return enter({{job, false}, workers, 0, 0, 0, std::move(on_answer)});
}

Rendezvous::Ticket Rendezvous::broadcast(const std::string& job, std::uint32_t workers, std::uint32_t rank,
                                         std::uint32_t root, std::uint64_t value, OnAnswer on_answer) {
  return enter({{job, true}, workers, rank, root, value, std::move(on_answer)});
}

// Returns the reason why a call is refused, or an empty text.
std::string Rendezvous::objection(const Call& call) const {
  if (call.workers < 1 || call.workers > kMostWorkers) {
    return "num_workers must be from 1 to " + std::to_string(kMostWorkers) + ", got " + std::to_string(call.workers);
  }
  if (call.rank >= call.workers || call.root >= call.workers) {
    return "rank and root must be below num_workers, which is " + std::to_string(call.workers) + "; got " +
           std::to_string(call.rank) + " and " + std::to_string(call.root);
  }
  const auto found = groups_.find(call.name);
  if (found == groups_.end() || found->second.waiters.empty()) return "";
  const Group& group = found->second;
  if (group.workers != call.workers || group.root != call.root) {
    return "the workers of this job disagree: this one expects " + std::to_string(call.workers) + " workers and root " +
           std::to_string(call.root) + ", the others expect " + std::to_string(group.workers) + " workers and root " +
           std::to_string(group.root);
  }
  return "";
}

Rendezvous::Ticket Rendezvous::enter(Call call) {
  std::vector<Waiter> leaving;
  std::vector<Waiter> replaced;
  Answer answer;
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = ++tickets_;
    answer.reason = objection(call);
    if (!answer.reason.empty()) {
      leaving.push_back({ticket, call.rank, std::move(call.on_answer)});
    } else {
      Group& group = groups_[call.name];
      group.workers = call.workers;
      group.root = call.root;
      if (call.rank == call.root) group.value = call.value;
      const auto others = std::stable_partition(group.waiters.begin(), group.waiters.end(), [&](const Waiter& waiter) {
        return !call.name.second || waiter.rank != call.rank;
      });
      replaced.assign(std::make_move_iterator(others), std::make_move_iterator(group.waiters.end()));
      group.waiters.erase(others, group.waiters.end());
      waiting_ -= replaced.size();
      group.waiters.push_back({ticket, call.rank, std::move(call.on_answer)});
      ++waiting_;
      if (group.waiters.size() == group.workers) {
        answer = {true, group.value, ""};
        waiting_ -= group.waiters.size();
        leaving = std::move(group.waiters);
        groups_.erase(call.name);
      }
    }
  }
  for (const Waiter& waiter : replaced) waiter.on_answer({false, 0, "a later call of this rank replaced this one"});
  for (const Waiter& waiter : leaving) waiter.on_answer(answer);
  return ticket;
}

void Rendezvous::leave(Ticket ticket) {
  OnAnswer released;  // destroyed after the lock is released, because it may own the call
  const std::lock_guard lock(mutex_);
  for (auto entry = groups_.begin(); entry != groups_.end(); ++entry) {
    auto& waiters = entry->second.waiters;
    const auto waiter =
        std::find_if(waiters.begin(), waiters.end(), [&](const Waiter& g) { return g.ticket == ticket; });
    if (waiter == waiters.end()) continue;
    released = std::move(waiter->on_answer);
    waiters.erase(waiter);
    --waiting_;
    if (waiters.empty()) groups_.erase(entry);
    return;
  }
}

void Rendezvous::give_up(const std::string& reason) {
  std::map<Name, Group> groups;
  {
    const std::lock_guard lock(mutex_);
    groups = std::exchange(groups_, {});
    waiting_ = 0;
  }
  for (const auto& [name, group] : groups) {
    for (const Waiter& waiter : group.waiters) waiter.on_answer({false, 0, reason});
  }
}

std::size_t Rendezvous::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

}  // namespace weft::control
