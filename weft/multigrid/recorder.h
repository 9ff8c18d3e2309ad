// Remembers the tasks that a rank executed, with their times and what each waited for: for traces and simulation.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <vector>

namespace weft::multigrid {

enum class TaskKind : std::int8_t { kStep, kCombine, kSend, kReceive };

struct Task {
  TaskKind kind = TaskKind::kStep;
  int level = 0;
  std::int64_t index = 0;  // step: the point it starts from; combine, send, receive: the point whose value it is
  int peer = -1;           // of a send or receive
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;
  std::vector<std::int64_t> needs{};  // earlier tasks of this rank, by position, whose results this one took
};

// Of one rank and one thread. A solve adds to what is there.
class Recorder {
 public:
  using Clock = std::chrono::steady_clock;

  Recorder() : origin_(Clock::now()) {}

  // Returns the task's number.
  std::int64_t add(Task task, Clock::time_point start, Clock::time_point stop);

  [[nodiscard]] const std::vector<Task>& tasks() const noexcept { return tasks_; }
  void clear();

  // As Chrome's trace viewer reads it: one complete event a task, process = rank, thread = level.
  void write_json(std::ostream& out, int rank) const;

 private:
  Clock::time_point origin_;
  std::vector<Task> tasks_;
};

}  // namespace weft::multigrid
