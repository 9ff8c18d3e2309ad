#include "weft/multigrid/problem/recorder.h"

#include <utility>

namespace weft::multigrid {
namespace {

const char* name_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::kStep:
      return "step";
    case TaskKind::kCombine:
      return "combine";
    case TaskKind::kSend:
      return "send";
    case TaskKind::kReceive:
      break;
  }
  return "receive";
}

void write_event(std::ostream& out, const Task& task, std::size_t number, int rank) {
  out << R"({"ph": "X", "name": ")" << name_of(task.kind) << R"(", "pid": )" << rank << R"(, "tid": )" << task.level
      << R"(, "ts": )" << static_cast<double>(task.start_ns) / 1000 << R"(, "dur": )"
      << static_cast<double>(task.duration_ns) / 1000 << R"(, "args": {"task": )" << number << R"(, "index": )"
      << task.index << R"(, "peer": )" << task.peer << R"(, "needs": [)";
  for (std::size_t i = 0; i < task.needs.size(); ++i) out << (i == 0 ? "" : ", ") << task.needs[i];
  out << "]}}";
}

}  // namespace

std::int64_t Recorder::add(Task task, Clock::time_point start, Clock::time_point stop) {
  using std::chrono::duration_cast;
  using std::chrono::nanoseconds;
  task.start_ns = duration_cast<nanoseconds>(start - origin_).count();
  task.duration_ns = duration_cast<nanoseconds>(stop - start).count();
  tasks_.push_back(std::move(task));
  return static_cast<std::int64_t>(tasks_.size()) - 1;
}

void Recorder::clear() {
  tasks_.clear();
  origin_ = Clock::now();
}

void Recorder::write_json(std::ostream& out, int rank) const {
  const auto precision = out.precision(17);
  out << "[";
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    out << (i == 0 ? "\n" : ",\n");
    write_event(out, tasks_[i], i, rank);
  }
  out << "\n]\n";
  out.precision(precision);
}

}  // namespace weft::multigrid
