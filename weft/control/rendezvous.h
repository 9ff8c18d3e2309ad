// Barrier and broadcast for the workers of a job, without blocking threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "weft/aggregation/packet/packet.h"

namespace weft::control {

class Rendezvous {
 public:
  struct Answer {
    bool met = false;
    std::uint64_t value = 0;  // broadcast only
    std::string reason;       // why the barrier or broadcast failed
  };
  using OnAnswer = std::function<void(const Answer&)>;  // called once, from any thread, without a lock held
  using Ticket = std::uint64_t;

  // A job's barrier and its broadcast hold at most this many callers each. The number of connections and of calls per
  // connection limits the callers of all jobs, so that no job can keep another one out.
  static constexpr std::uint32_t kMostWorkers = aggregation::kMaxExtendedWorkers;

  // Answers when `workers` callers of the job have arrived.
  Ticket barrier(const std::string& job, std::uint32_t workers, OnAnswer on_answer);
  // Answers with the root's value when all ranks have arrived. A second call of a rank replaces its first call, which
  // fails.
  Ticket broadcast(const std::string& job, std::uint32_t workers, std::uint32_t rank, std::uint32_t root,
                   std::uint64_t value, OnAnswer on_answer);
  // Removes a caller that disconnected, without an answer.
  void leave(Ticket ticket);
  // Fails all waiting calls.
  void give_up(const std::string& reason);
  [[nodiscard]] std::size_t waiting() const;

 private:
  struct Waiter {
    Ticket ticket;
    std::uint32_t rank;
    OnAnswer on_answer;
  };
  struct Group {
    std::uint32_t workers = 0;
    std::uint32_t root = 0;
    std::uint64_t value = 0;
    std::vector<Waiter> waiters;
  };
  using Name = std::pair<std::string, bool>;  // job; whether it is a broadcast

  struct Call {
    Name name;
    std::uint32_t workers, rank, root;
    std::uint64_t value;
    OnAnswer on_answer;
  };
  Ticket enter(Call call);
  [[nodiscard]] std::string objection(const Call& call) const;

  mutable std::mutex mutex_;
  std::map<Name, Group> groups_;
  std::size_t waiting_ = 0;
  Ticket tickets_ = 0;
};

}  // namespace weft::control
