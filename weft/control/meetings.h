// Where a job's workers meet before they send: SwitchML's barrier and broadcast, without a thread that waits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace weft::control {

class Meetings {
 public:
  struct Answer {
    bool met = false;
    std::uint64_t value = 0;  // of a broadcast
    std::string reason;       // why they did not meet
  };
  using Answered = std::function<void(const Answer&)>;  // called once, by any thread, without a lock held
  using Ticket = std::uint64_t;

  // At most so many callers wait at any time: those who never come back must not fill the memory.
  explicit Meetings(std::size_t capacity = 4096) : capacity_(capacity) {}

  // Answers when `workers` callers of that job are here.
  Ticket barrier(const std::string& job, std::uint32_t workers, Answered answered);
  // Answers with the root's value when each of `workers` ranks is here. A rank that calls again takes its own
  // place; its earlier call is told so.
  Ticket broadcast(const std::string& job, std::uint32_t workers, std::uint32_t rank, std::uint32_t root,
                   std::uint64_t value, Answered answered);
  // The caller has gone. Its place is free; it is not answered.
  void leave(Ticket ticket);
  // Answers all who wait that they will not meet.
  void give_up(const std::string& reason);
  [[nodiscard]] std::size_t waiting() const;

 private:
  struct Guest {
    Ticket ticket;
    std::uint32_t rank;
    Answered answered;
  };
  struct Round {
    std::uint32_t workers = 0;
    std::uint32_t root = 0;
    std::uint64_t value = 0;
    std::vector<Guest> guests;
  };
  using Name = std::pair<std::string, bool>;  // job, whether it is a broadcast

  struct Call {
    Name name;
    std::uint32_t workers, rank, root;
    std::uint64_t value;
    Answered answered;
  };
  Ticket enter(Call call);
  [[nodiscard]] std::string objection(const Call& call) const;

  std::size_t capacity_;
  mutable std::mutex mutex_;
  std::map<Name, Round> rounds_;
  std::size_t waiting_ = 0;
  Ticket tickets_ = 0;
};

}  // namespace weft::control
