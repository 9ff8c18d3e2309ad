#include "python/bindings/planning.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "python/bindings/layer_parallel.h"
#include "python/bindings/named.h"
#include "weft/planning/multigrid_graph.h"
#include "weft/planning/pipeline_graph.h"
#include "weft/planning/replay.h"

namespace py = pybind11;

namespace weft::planning {
namespace {

Machine machine(const py::dict& description) {
  return {.latency = description["latency"].cast<double>(),
          .bandwidth = description["bandwidth"].cast<double>(),
          .cores = description["cores"].cast<int>(),
          .ranks_per_node = description["ranks_per_node"].cast<int>()};
}

NetworkCosts costs(const py::dict& description) {
  NetworkCosts result;
  using Row = std::tuple<double, double, double, double, std::int64_t>;
  for (const auto& [forward, recorded, adjoint, weighted, bytes] : description["layers"].cast<std::vector<Row>>()) {
    result.layers.push_back({forward, recorded, adjoint, weighted, bytes});
  }
  result.combine = description["combine"].cast<double>();
  result.norm = description["norm"].cast<double>();
  result.loss = description["loss"].cast<double>();
  result.fixed = description["fixed"].cast<double>();
  result.state_bytes = description["state_bytes"].cast<std::int64_t>();
  return result;
}

py::dict to_python(const Replay& replay) {
  py::dict result;
  result["seconds"] = replay.seconds;
  result["busiest"] = replay.busy.empty() ? 0 : *std::max_element(replay.busy.begin(), replay.busy.end());
  result["messages"] = replay.messages;
  result["bytes"] = replay.bytes;
  return result;
}

py::dict plan_multigrid(std::int64_t count, int ranks, const py::dict& description, const py::dict& measured,
                        const py::dict& target) {
  const layer_parallel::Options options = layer_parallel::options(description);
  const layer_parallel::Plan plan(count, ranks, options.tf, options.forward_grid, options.backward_grid);
  return to_python(replay(multigrid_graph(plan, options.forward, options.backward, costs(measured)), machine(target)));
}

// sizes: the index in `measured` of each micro-batch.
py::dict plan_pipeline(std::int64_t count, int ranks, const std::vector<py::dict>& measured,
                       const std::vector<std::size_t>& sizes, const py::dict& target) {
  std::vector<NetworkCosts> parts;
  for (const py::dict& each : measured) parts.push_back(costs(each));
  std::vector<NetworkCosts> micro_batches;
  for (const std::size_t index : sizes) micro_batches.push_back(parts.at(index));
  const layer_parallel::Plan plan(count, ranks, 1, {}, {});
  return to_python(replay(pipeline_graph(plan, micro_batches), machine(target)));
}

// Tasks are dictionaries with a kind and the members that it needs.
py::dict plan_replay(const std::vector<std::vector<py::dict>>& ranks, const py::dict& target) {
  TaskGraph graph;
  for (const auto& tasks : ranks) {
    Tasks& row = graph.emplace_back();
    for (const py::dict& each : tasks) {
      Task task;
      task.kind = named<std::string, Task::Kind>(each, "kind",
                                                 {{"compute", Task::Kind::kCompute},
                                                  {"send", Task::Kind::kSend},
                                                  {"receive", Task::Kind::kReceive},
                                                  {"join", Task::Kind::kJoin},
                                                  {"wait", Task::Kind::kWait}});
      if (each.contains("seconds")) task.seconds = each["seconds"].cast<double>();
      if (each.contains("peer")) task.peer = each["peer"].cast<int>();
      if (each.contains("channel")) task.channel = each["channel"].cast<int>();
      if (each.contains("bytes")) task.bytes = each["bytes"].cast<std::int64_t>();
      row.push_back(task);
    }
  }
  return to_python(replay(graph, machine(target)));
}

}  // namespace

void bind(py::module_& m) {
  m.def("plan_multigrid", &plan_multigrid);
  m.def("plan_pipeline", &plan_pipeline);
  m.def("plan_replay", &plan_replay);
}

}  // namespace weft::planning
