#include "python/bindings/layer_parallel.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

#include "weft/layer_parallel/network.h"

namespace py = pybind11;

namespace weft::layer_parallel {
namespace {

// A Python object that any thread may release.
std::shared_ptr<py::object> hold(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

py::object to_python(const Tensors& state) {
  if (state.size() == 1) return py::cast(state.front());
  py::tuple tuple(state.size());
  for (std::size_t i = 0; i < state.size(); ++i) tuple[i] = py::cast(state[i]);
  return tuple;
}

Tensors from_python(const py::object& object) {
  if (THPVariable_Check(object.ptr())) return {object.cast<at::Tensor>()};
  if (!py::isinstance<py::tuple>(object) && !py::isinstance<py::list>(object)) {
    throw py::type_error("expected a tensor or a tuple of tensors, got " +
                         py::str(py::type::of(object)).cast<std::string>());
  }
  return object.cast<Tensors>();
}

Layer::Function function(py::object callable) {
  return [held = hold(std::move(callable))](const Tensors& x, double dt) {
    const py::gil_scoped_acquire gil;
    return from_python((*held)(to_python(x), dt));
  };
}

Transfers::Function transfer(const py::object& callable) {
  if (callable.is_none()) return nullptr;
  return [held = hold(callable)](const Tensors& x, int level) {
    const py::gil_scoped_acquire gil;
    return from_python((*held)(to_python(x), level));
  };
}

// Returns the enumerator that the value of `key` names. Throws ValueError for unknown names.
template <class Key, class Enum>
Enum named(const py::dict& description, const char* key, std::initializer_list<std::pair<Key, Enum>> names) {
  const auto value = description[key].cast<Key>();
  for (const auto& [name, enumerator] : names) {
    if (name == value) return enumerator;
  }
  throw py::value_error("weft: " + std::string(key) + ": unknown value " +
                        py::repr(description[key]).cast<std::string>());
}

Layer layer(const py::dict& description) {
  Layer layer;
  layer.function = function(description["function"]);
  layer.form = named<std::string, Form>(
      description, "form", {{"residual", Form::kResidual}, {"step", Form::kStep}, {"plain", Form::kPlain}});
  layer.parameters = description["parameters"].cast<Tensors>();
  layer.buffers = description["buffers"].cast<Tensors>();
  layer.name = description["name"].cast<std::string>();
  return layer;
}

template <class T>
multigrid::PerLevel<T> per_level(const py::handle& value) {
  const auto [everywhere, exceptions] = value.cast<std::pair<T, std::map<int, T>>>();
  return {everywhere, exceptions};
}

GridOptions grid(const py::dict& description) {
  return {description["levels"].cast<int>(), per_level<std::int64_t>(description["cfactor"]),
          description["min_coarse"].cast<std::int64_t>()};
}

multigrid::Options solve(const py::dict& description) {
  multigrid::Options options;
  options.max_iterations = description["iterations"].cast<int>();
  options.absolute_tolerance = description["tolerance"].cast<double>();
  options.relative_tolerance = description["relative_tolerance"].cast<double>();
  options.temporal_norm = named<double, multigrid::TemporalNorm>(
      description, "norm",
      {{1.0, multigrid::TemporalNorm::kOne},
       {2.0, multigrid::TemporalNorm::kTwo},
       {std::numeric_limits<double>::infinity(), multigrid::TemporalNorm::kInfinity}});
  options.compute_residual = description["residual"].cast<bool>();
  options.relaxations = per_level<int>(description["relaxations"]);
  options.c_weight = per_level<double>(description["c_weight"]);
  options.cycle = named<std::string, multigrid::CycleKind>(
      description, "cycle", {{"V", multigrid::CycleKind::kV}, {"F", multigrid::CycleKind::kF}});
  options.skip_downcycle = description["skip_downcycle"].cast<bool>();
  options.relax_coarsest_only = description["relax_coarsest_only"].cast<bool>();
  options.storage = named<std::string, multigrid::Storage>(
      description, "storage", {{"all", multigrid::Storage::kAllPoints}, {"c-points", multigrid::Storage::kCPoints}});
  options.initial_guess =
      named<std::string, multigrid::InitialGuess>(description, "guess",
                                                  {{"zero", multigrid::InitialGuess::kZero},
                                                   {"constant", multigrid::InitialGuess::kConstant},
                                                   {"coarse", multigrid::InitialGuess::kCoarseSolve},
                                                   {"callback", multigrid::InitialGuess::kCallback},
                                                   {"previous", multigrid::InitialGuess::kPrevious}});
  return options;
}

Options options(const py::dict& description) {
  Options options;
  options.tf = description["tf"].cast<double>();
  options.forward_grid = grid(description["forward_grid"]);
  options.backward_grid = grid(description["backward_grid"]);
  options.forward = solve(description["forward"]);
  options.backward = solve(description["backward"]);
  options.replicated = description["replicated"].cast<bool>();
  options.transfers = {transfer(description["coarsen"]), transfer(description["refine"])};
  options.keep_states = description["keep_states"].cast<bool>();
  if (const py::object guess = description["guess"]; !guess.is_none()) {
    options.guess = [held = hold(guess)](double time) {
      const py::gil_scoped_acquire gil;
      return from_python((*held)(time));
    };
  }
  return options;
}

std::unique_ptr<LayerParallel> create(std::int64_t communicator, std::int64_t count, const py::dict& layers,
                                      const py::list& shared, const py::dict& description) {
  std::map<std::int64_t, Layer> needed;
  for (const auto& [number, item] : layers) needed.emplace(number.cast<std::int64_t>(), layer(item.cast<py::dict>()));
  std::vector<SharedParameter> parameters;
  for (const auto& item : shared) {
    const auto [mine, like] = item.cast<std::pair<std::optional<at::Tensor>, at::Tensor>>();
    parameters.push_back({mine.value_or(at::Tensor()), StateLayout::of({like}).items.front()});
  }
  const Options how = options(description);
  const py::gil_scoped_release released;
  return std::make_unique<LayerParallel>(Communicator::find(communicator), count, std::move(needed),
                                         std::move(parameters), how);
}

py::object forward(LayerParallel& network, const py::object& x, const Tensors& extras, const py::object& prepare) {
  const Tensors state = x.is_none() ? Tensors() : from_python(x);
  std::function<void()> run;
  if (!prepare.is_none()) {
    run = [held = hold(prepare)] {
      const py::gil_scoped_acquire gil;
      (*held)();
    };
  }
  Tensors y;
  {
    const py::gil_scoped_release released;
    y = network.forward(state, extras, std::move(run));
  }
  return to_python(y);
}

py::dict statistics(const multigrid::Statistics& from) {
  py::dict result;
  result["iterations"] = from.iterations;
  result["converged"] = from.converged;
  result["residuals"] = from.residuals;
  result["steps"] = from.steps;
  result["messages"] = from.messages_sent;
  result["bytes"] = from.bytes_sent;
  result["seconds_waiting"] = from.seconds_waiting;
  return result;
}

py::list states(const LayerParallel& network) {
  py::list result;
  for (const auto& [point, state] : network.states()) result.append(py::make_tuple(point, to_python(state)));
  return result;
}

py::tuple plan(std::int64_t count, int ranks, int rank, const py::dict& description) {
  const Options how = options(description);
  const Plan plan(count, ranks, how.tf, how.forward_grid, how.backward_grid);
  const partition::Range own = plan.layers_of(rank);
  std::vector<int> owners;
  for (int each = 0; each < ranks; ++each) owners.insert(owners.end(), plan.layers_of(each).size(), each);
  return py::make_tuple(own.begin, own.end, plan.borrowed(rank), owners, plan.forward().levels(),
                        plan.adjoint().levels());
}

}  // namespace

void bind(py::module_& m) {
  m.def("layer_parallel_plan", &plan);
  py::class_<LayerParallel>(m, "LayerParallel")
      .def(py::init(&create))
      .def("forward", &forward)
      .def("set_solvers", [](LayerParallel& self, const py::dict& forward,
                             const py::dict& backward) { self.set_solvers(solve(forward), solve(backward)); })
      .def("rebind", &LayerParallel::rebind)
      .def("states", &states)
      .def("release_states", &LayerParallel::release_states)
      .def("statistics", [](const LayerParallel& self) {
        return py::make_tuple(statistics(self.statistics().forward), statistics(self.statistics().backward));
      });
}

}  // namespace weft::layer_parallel
