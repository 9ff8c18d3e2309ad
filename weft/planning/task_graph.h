// TaskGraph: the work and the messages of each rank in a training step, in the order in which the rank performs them.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::planning {

struct Task {
  enum class Kind : std::int8_t {
    kCompute,
    kSend,     // does not block
    kReceive,  // blocks until the message arrives; messages of one channel between two ranks stay in order
    kJoin,     // starts a reduction over all ranks; all ranks start their reductions in the same order
    kWait,     // blocks until the oldest reduction that this rank has not waited for is complete
  };
  Kind kind = Kind::kCompute;
  double seconds = 0;      // of kCompute
  int peer = -1;           // the other rank of a message
  int channel = 0;         // messages of different channels are independent
  std::int64_t bytes = 0;  // of kSend and kJoin
  friend bool operator==(const Task&, const Task&) = default;
};

using Tasks = std::vector<Task>;
using TaskGraph = std::vector<Tasks>;  // the tasks of each rank

// Appends work; joins it to work that directly precedes it.
inline void compute(Tasks& tasks, double seconds) {
  if (!tasks.empty() && tasks.back().kind == Task::Kind::kCompute) {
    tasks.back().seconds += seconds;
  } else {
    tasks.push_back({.kind = Task::Kind::kCompute, .seconds = seconds});
  }
}
inline void send(Tasks& tasks, int dest, int channel, std::int64_t bytes) {
  tasks.push_back({.kind = Task::Kind::kSend, .peer = dest, .channel = channel, .bytes = bytes});
}
inline void receive(Tasks& tasks, int source, int channel) {
  tasks.push_back({.kind = Task::Kind::kReceive, .peer = source, .channel = channel});
}
// All ranks wait for each other.
inline void synchronize(Tasks& tasks, std::int64_t bytes = 8) {
  tasks.push_back({.kind = Task::Kind::kJoin, .bytes = bytes});
  tasks.push_back({.kind = Task::Kind::kWait});
}

}  // namespace weft::planning
