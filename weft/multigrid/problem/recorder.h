// Recorder: the tasks that a rank executed, with times and dependencies, for traces and simulation.
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
  std::int64_t index = 0;  // the start of a step; the point of a combine, send or receive
  int peer = -1;           // the other rank of a send or receive
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;
  std::vector<std::int64_t> needs{};  // numbers of earlier tasks of this rank whose results this task uses
};

// Used by one thread of one rank. Each solve appends its tasks.
class Recorder {
 public:
  using Clock = std::chrono::steady_clock;

  Recorder() : origin_(Clock::now()) {}

  // Returns the task's number.
  std::int64_t add(Task task, Clock::time_point start, Clock::time_point stop);

  [[nodiscard]] const std::vector<Task>& tasks() const noexcept { return tasks_; }
  void clear();

  // Writes Chrome trace format: one complete event per task, with the rank as process and the level as thread.
  void write_json(std::ostream& out, int rank) const;

 private:
  Clock::time_point origin_;
  std::vector<Task> tasks_;
};

}  // namespace weft::multigrid
