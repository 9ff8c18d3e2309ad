// Replays a TaskGraph on a modelled machine and returns the time that it takes.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/planning/task_graph.h"

namespace weft::planning {

// A message takes latency + bytes / bandwidth; a reduction takes log2(ranks) messages, rounded up. Ranks are
// placed on the nodes in order. If a node has more ranks than cores, work waits for a core; a rank that waits for a
// message needs no core.
struct Machine {
  double latency = 0;    // seconds
  double bandwidth = 1;  // bytes per second; may be infinite
  int cores = 1;         // on each node
  int ranks_per_node = 1;
};

struct Replay {
  double seconds = 0;        // until the last rank is done
  std::vector<double> busy;  // seconds of work of each rank
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
};

// Throws std::invalid_argument if a value of the machine is out of range, a peer does not exist, or the tasks wait for
// each other forever.
[[nodiscard]] Replay replay(const TaskGraph& graph, const Machine& machine);

}  // namespace weft::planning
