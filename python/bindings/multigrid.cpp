#include "python/bindings/multigrid.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings/held.h"
#include "python/bindings/named.h"
#include "weft/layer_parallel/pass_functions.h"
#include "weft/mpi/communicator.h"
#include "weft/time_parallel/sequence_multigrid.h"

namespace py = pybind11;

namespace weft::multigrid {
namespace {

template <class T>
PerLevel<T> per_level(const py::handle& value) {
  const auto [everywhere, exceptions] = value.cast<std::pair<T, std::map<int, T>>>();
  return {everywhere, exceptions};
}

using time_parallel::SequenceMultigrid;
using time_parallel::TimeOrder;

std::unique_ptr<SequenceMultigrid> create(std::optional<std::int64_t> communicator,
                                          const std::vector<std::int64_t>& steps, const py::dict& grid, bool adjoint) {
  return std::make_unique<SequenceMultigrid>(communicator ? Communicator::find(*communicator) : nullptr, steps,
                                             grid_options(grid), adjoint ? TimeOrder::kAdjoint : TimeOrder::kForward);
}

// `step` is called with the states, the first steps, the count of each step, and whether they are final.
py::dict solve(SequenceMultigrid& self, const at::Tensor& initial, py::object step, const py::dict& description) {
  const auto function = [held = hold(std::move(step))](const at::Tensor& states,
                                                       const SequenceMultigrid::Steps& steps) {
    const py::gil_scoped_acquire gil;
    try {
      return (*held)(states, steps.first, steps.count, steps.final).cast<at::Tensor>();
    } catch (const py::error_already_set& error) {
      // KeyboardInterrupt, SystemExit and the like are not failures of a cell.
      if (!error.matches(PyExc_Exception)) std::throw_with_nested(layer_parallel::Interrupted(error.what()));
      throw;
    }
  };
  Options options = solve_options(description);
  options.measure_last_change = true;
  Statistics statistics;
  {
    const py::gil_scoped_release released;
    statistics = self.solve(initial, function, options);
  }
  return to_python(statistics);
}

}  // namespace

Options solve_options(const py::dict& description) {
  Options options;
  options.max_iterations = description["iterations"].cast<int>();
  options.absolute_tolerance = description["tolerance"].cast<double>();
  options.relative_tolerance = description["relative_tolerance"].cast<double>();
  options.temporal_norm =
      named<double, TemporalNorm>(description, "norm",
                                  {{1.0, TemporalNorm::kOne},
                                   {2.0, TemporalNorm::kTwo},
                                   {std::numeric_limits<double>::infinity(), TemporalNorm::kInfinity}});
  options.compute_residual = description["residual"].cast<bool>();
  options.relaxations = per_level<int>(description["relaxations"]);
  options.c_weight = per_level<double>(description["c_weight"]);
  options.cycle = named<std::string, CycleKind>(description, "cycle", {{"V", CycleKind::kV}, {"F", CycleKind::kF}});
  options.skip_downcycle = description["skip_downcycle"].cast<bool>();
  options.relax_coarsest_only = description["relax_coarsest_only"].cast<bool>();
  options.storage = named<std::string, Storage>(description, "storage",
                                                {{"all", Storage::kAllPoints}, {"c-points", Storage::kCPoints}});
  options.initial_guess = named<std::string, InitialGuess>(description, "guess",
                                                           {{"zero", InitialGuess::kZero},
                                                            {"constant", InitialGuess::kConstant},
                                                            {"coarse", InitialGuess::kCoarseSolve},
                                                            {"callback", InitialGuess::kCallback},
                                                            {"previous", InitialGuess::kPrevious}});
  return options;
}

HierarchyOptions grid_options(const py::dict& description) {
  HierarchyOptions options;
  options.max_levels = description["levels"].cast<int>();
  options.coarsening = per_level<std::int64_t>(description["cfactor"]);
  options.min_coarse_steps = description["min_coarse"].cast<std::int64_t>();
  return options;
}

py::dict to_python(const Statistics& from) {
  py::dict result;
  result["iterations"] = from.iterations;
  result["converged"] = from.converged;
  result["residuals"] = from.residuals;
  result["last_change"] = from.last_change;
  result["steps"] = from.steps;
  result["messages"] = from.messages_sent;
  result["bytes"] = from.bytes_sent;
  result["seconds_waiting"] = from.seconds_waiting;
  return result;
}

void bind(py::module_& m) {
  py::class_<SequenceMultigrid>(m, "SequenceMultigrid").def(py::init(&create)).def("solve", &solve);
}

}  // namespace weft::multigrid
