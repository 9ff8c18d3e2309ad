#include "weft/planning/replay.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <stdexcept>
#include <string>
#include <tuple>

namespace weft::planning {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument("weft: plan: " + what);
}

// A discrete-event simulation. The rank whose next task can start first moves first, so that cores are assigned in the
// order of the requests.
class Simulation {
 public:
  Simulation(const TaskGraph& graph, const Machine& machine)
      : graph_(graph),
        machine_(machine),
        ranks_(graph.size()),
        now_(ranks_),
        next_(ranks_),
        joined_(ranks_),
        waited_(ranks_) {
    const std::size_t nodes = (ranks_ + node_size() - 1) / node_size();
    for (std::size_t node = 0; node < nodes; ++node) {
      const std::vector<double> idle(static_cast<std::size_t>(machine.cores), 0.0);
      cores_.emplace_back(std::greater<>(), idle);
    }
    result_.busy.resize(ranks_);
  }

  Replay run() {
    for (std::size_t rank = 0; rank < ranks_; ++rank) ready_.emplace(0.0, rank);
    while (!ready_.empty()) {
      const std::size_t rank = ready_.top().second;
      ready_.pop();
      if (next_[rank] < graph_[rank].size()) execute(rank, graph_[rank][next_[rank]]);
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      require(next_[rank] == graph_[rank].size(), "the task graph is not consistent: rank " + std::to_string(rank) +
                                                      " waits forever in task " + std::to_string(next_[rank]));
    }
    if (ranks_ > 0) result_.seconds = *std::max_element(now_.begin(), now_.end());
    return std::move(result_);
  }

 private:
  using Moment = std::pair<double, std::size_t>;            // a time, and the rank that continues then
  using Route = std::tuple<std::size_t, std::size_t, int>;  // source, destination, channel
  struct Reduction {
    std::size_t joined = 0;
    double last = 0;  // the time at which the last rank joined
    std::int64_t bytes = 0;
    std::vector<std::size_t> waiting;
  };

  [[nodiscard]] std::size_t node_size() const { return static_cast<std::size_t>(machine_.ranks_per_node); }
  [[nodiscard]] double message_seconds(std::int64_t bytes) const {
    return machine_.latency + static_cast<double>(bytes) / machine_.bandwidth;
  }

  void execute(std::size_t rank, const Task& task) {
    switch (task.kind) {
      case Task::Kind::kCompute:
        return compute(rank, task.seconds);
      case Task::Kind::kSend:
        return send(rank, task);
      case Task::Kind::kReceive:
        return receive(rank, task);
      case Task::Kind::kJoin:
        return join(rank, task);
      case Task::Kind::kWait:
        return wait(rank);
    }
  }

  // The rank has done its task and continues at `time`.
  void advance(std::size_t rank, double time) {
    now_[rank] = time;
    ++next_[rank];
    ready_.emplace(time, rank);
  }

  void compute(std::size_t rank, double seconds) {
    auto& cores = cores_[rank / node_size()];
    const double start = std::max(now_[rank], cores.top());
    cores.pop();
    cores.push(start + seconds);
    result_.busy[rank] += seconds;
    advance(rank, start + seconds);
  }

  [[nodiscard]] std::size_t peer_of(const Task& task) const {
    require(task.peer >= 0 && static_cast<std::size_t>(task.peer) < ranks_,
            "the task graph is not consistent: it has no rank " + std::to_string(task.peer));
    return static_cast<std::size_t>(task.peer);
  }

  void send(std::size_t rank, const Task& task) {
    const std::size_t dest = peer_of(task);
    const Route route{rank, dest, task.channel};
    arrivals_[route].push_back(now_[rank] + message_seconds(task.bytes));
    ++result_.messages;
    result_.bytes += task.bytes;
    if (const auto found = receivers_.find(route); found != receivers_.end()) {
      receivers_.erase(found);
      ready_.emplace(now_[dest], dest);  // it can now receive
    }
    advance(rank, now_[rank]);
  }

  void receive(std::size_t rank, const Task& task) {
    const Route route{peer_of(task), rank, task.channel};
    auto& arrivals = arrivals_[route];
    if (arrivals.empty()) {
      receivers_.emplace(route, rank);
      return;
    }
    const double arrival = arrivals.front();
    arrivals.pop_front();
    advance(rank, std::max(now_[rank], arrival));
  }

  void join(std::size_t rank, const Task& task) {
    Reduction& reduction = reductions_[joined_[rank]++];
    ++reduction.joined;
    reduction.last = std::max(reduction.last, now_[rank]);
    reduction.bytes = std::max(reduction.bytes, task.bytes);
    if (reduction.joined == ranks_) {
      for (const std::size_t other : reduction.waiting) ready_.emplace(now_[other], other);
      reduction.waiting.clear();
    }
    advance(rank, now_[rank]);
  }

  void wait(std::size_t rank) {
    require(waited_[rank] < joined_[rank], "the task graph is not consistent: rank " + std::to_string(rank) +
                                               " waits for a reduction it has not joined");
    Reduction& reduction = reductions_[waited_[rank]];
    if (reduction.joined < ranks_) {
      reduction.waiting.push_back(rank);
      return;
    }
    ++waited_[rank];
    const int rounds = std::bit_width(ranks_ - 1);
    advance(rank, std::max(now_[rank], reduction.last + rounds * message_seconds(reduction.bytes)));
  }

  const TaskGraph& graph_;
  const Machine& machine_;
  std::size_t ranks_;
  std::vector<double> now_;
  std::vector<std::size_t> next_;    // the next task of each rank
  std::vector<std::size_t> joined_;  // reductions that each rank has joined
  std::vector<std::size_t> waited_;  // reductions that each rank has waited for
  std::priority_queue<Moment, std::vector<Moment>, std::greater<>> ready_;
  std::vector<std::priority_queue<double, std::vector<double>, std::greater<>>> cores_;  // when each core is free
  std::map<Route, std::deque<double>> arrivals_;
  std::map<Route, std::size_t> receivers_;  // ranks that wait for a message
  std::map<std::size_t, Reduction> reductions_;
  Replay result_;
};

}  // namespace

Replay replay(const TaskGraph& graph, const Machine& machine) {
  require(machine.latency >= 0, "the latency must be at least 0 seconds");
  require(machine.bandwidth > 0, "the bandwidth must be above 0 bytes per second");
  require(machine.cores >= 1, "a node must have at least one core");
  require(machine.ranks_per_node >= 1, "a node must have at least one rank");
  return Simulation(graph, machine).run();
}

}  // namespace weft::planning
