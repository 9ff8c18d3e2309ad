#include "python/bindings/layer_parallel.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <set>
#include <string>
#include <utility>

#include "python/bindings/held.h"
#include "python/bindings/multigrid.h"
#include "python/bindings/named.h"
#include "weft/layer_parallel/gradient_bias.h"
#include "weft/layer_parallel/iteration_control.h"
#include "weft/layer_parallel/network.h"
#include "weft/layer_parallel/randomness.h"
#include "weft/mpi/agreement.h"
#include "weft/mpi/options.h"

namespace py = pybind11;

namespace weft::layer_parallel {
namespace {

py::object to_python(const Tensors& state) {
  if (state.size() == 1) return py::cast(state.front());
  py::tuple tuple(state.size());
  for (std::size_t i = 0; i < state.size(); ++i) tuple[i] = py::cast(state[i]);
  return tuple;
}

Tensors from_python(const py::object& object) {
  if (THPVariable_Check(object.ptr())) return {object.cast<at::Tensor>()};
  const auto reject = [](const char* got, const py::handle& value) {
    throw py::type_error(std::string("weft: expected a tensor or a tuple of tensors, got ") + got +
                         py::str(py::type::handle_of(value)).cast<std::string>());
  };
  if (!py::isinstance<py::tuple>(object) && !py::isinstance<py::list>(object)) reject("", object);
  for (const py::handle& item : object) {
    if (!THPVariable_Check(item.ptr())) reject("a sequence that contains ", item);
  }
  return object.cast<Tensors>();
}

// Calls a method of a pass. KeyboardInterrupt, SystemExit and the like are not failures of a layer.
template <class... Arguments>
py::object call(const Held& method, Arguments&&... arguments) {
  try {
    return (*method)(std::forward<Arguments>(arguments)...);
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) std::throw_with_nested(Interrupted(error.what()));
    throw;
  }
}

// The methods of a Python pass as functions of the library. `has_input`: this rank provides the input.
PassFunctions functions_of(const py::object& pass, bool has_input) {
  const auto method = [&](const char* name) { return hold(pass.attr(name)); };
  PassFunctions functions;
  functions.input = [begin = method("begin"), has_input] {
    const py::gil_scoped_acquire gil;
    const py::object x = call(begin);
    return has_input && !x.is_none() ? from_python(x) : Tensors();
  };
  functions.evaluate = [evaluate = method("evaluate")](std::int64_t layer, const Tensors& x, double dt,
                                                       Buffers buffers) {
    const py::gil_scoped_acquire gil;
    return from_python(call(evaluate, layer, to_python(x), dt, buffers == Buffers::kKeep));
  };
  functions.kind = [kind = method("kind")](std::int64_t layer) {
    const py::gil_scoped_acquire gil;
    return call(kind, layer).cast<std::string>();
  };
  functions.begin_micro_batch = [begin = method("begin_micro_batch")](partition::Range rows, std::int64_t total) {
    const py::gil_scoped_acquire gil;
    call(begin, rows.begin, rows.end, total);
  };
  const auto transfer = [&](const char* name) -> Transfers::Function {
    const Held function = method(name);
    if (function->is_none()) return nullptr;
    return [function](const Tensors& x, int level) {
      const py::gil_scoped_acquire gil;
      return from_python(call(function, to_python(x), level));
    };
  };
  functions.transfers = {transfer("coarsen"), transfer("refine")};
  functions.guess = [guess = method("guess")](double time) {
    const py::gil_scoped_acquire gil;
    return from_python(call(guess, time));
  };
  functions.describe = [describe = method("describe")](std::int64_t layer) {
    const py::gil_scoped_acquire gil;
    return call(describe, layer).cast<std::string>();
  };
  functions.update = [update = method("update")](std::int64_t layer, const std::string& description) {
    const py::gil_scoped_acquire gil;
    call(update, layer, py::bytes(description));
  };
  functions.solved = [solved = method("solved")](bool backward) {
    const py::gil_scoped_acquire gil;
    call(solved, backward);
  };
  functions.leaves = pass.attr("leaves").cast<Tensors>();
  return functions;
}

Form form_of(const py::handle& name) {
  const py::dict description(py::arg("form") = name);
  return named<std::string, Form>(description, "form",
                                  {{"residual", Form::kResidual}, {"step", Form::kStep}, {"plain", Form::kPlain}});
}

Layer layer(const py::dict& description) {
  Layer layer;
  layer.form = form_of(description["form"]);
  layer.parameters = description["parameters"].cast<Tensors>();
  layer.buffers = description["buffers"].cast<Tensors>();
  layer.name = description["name"].cast<std::string>();
  return layer;
}

GridOptions grid(const py::dict& description) {
  const multigrid::HierarchyOptions options = multigrid::grid_options(description);
  return {options.max_levels, options.coarsening, options.min_coarse_steps};
}

SolverKind solver_of(const py::handle& name) {
  const py::dict description(py::arg("solver") = name);
  return named<std::string, SolverKind>(description, "solver",
                                        {{"mgrit", SolverKind::kMultigrid}, {"pipeline", SolverKind::kPipeline}});
}

std::unique_ptr<LayerParallel> create(std::int64_t communicator, std::int64_t count, const py::dict& layers,
                                      SharedCopies shared, const py::dict& description) {
  std::map<std::int64_t, Layer> needed;
  for (const auto& [number, item] : layers) needed.emplace(number.cast<std::int64_t>(), layer(item.cast<py::dict>()));
  const Options how = options(description);
  const py::gil_scoped_release released;
  return std::make_unique<LayerParallel>(Communicator::find(communicator), count, std::move(needed), std::move(shared),
                                         how);
}

// Collective. A rank whose arguments are invalid calls it instead of constructing the network. Returns if the arguments
// of all ranks are invalid; otherwise all ranks throw Disagreement.
void refuse(std::int64_t id, const std::string& problem) {
  if (!mpi::options().check) return;
  const py::gil_scoped_release released;
  const auto communicator = Communicator::find(id);
  communicator->enter();
  const auto outcome = communicator->agree(mpi::Direction::kForward, {.value = 1, .failed = true});
  if (outcome.value_min != 1) mpi::throw_disagreement(*communicator, "LayerParallel failed: " + problem);
}

py::object forward(LayerParallel& network, const Tensors& extras, const py::object& pass) {
  PassFunctions functions = functions_of(pass, network.options().replicated || network.communicator().rank() == 0);
  Tensors y;
  {
    const py::gil_scoped_release released;
    y = network.forward(Tensors(), extras, std::move(functions));
  }
  return to_python(y);
}

LossFunction loss_of(const py::object& pass) {
  return [loss = hold(pass.attr("loss"))](const Tensors& y, partition::Range rows) {
    const py::gil_scoped_acquire gil;
    return call(loss, to_python(y), rows.begin, rows.end).cast<at::Tensor>();
  };
}

py::object loss(LayerParallel& network, const Tensors& extras, const py::object& pass) {
  PassFunctions functions = functions_of(pass, network.communicator().rank() == 0);
  const LossFunction function = loss_of(pass);
  at::Tensor value;
  {
    const py::gil_scoped_release released;
    value = network.loss(Tensors(), function, extras, std::move(functions));
  }
  return py::cast(value);
}

DifferentiatedLoss loss_gradients(LayerParallel& network, const Tensors& extras, const py::object& pass,
                                  const py::object& solver) {
  PassFunctions functions = functions_of(pass, network.communicator().rank() == 0);
  const LossFunction function = loss_of(pass);
  const SolverKind kind = solver_of(solver);
  const py::gil_scoped_release released;
  return network.loss_gradients(Tensors(), function, kind, extras, std::move(functions));
}

py::tuple compare(const LayerParallel& network, const DifferentiatedLoss& approximation,
                  const DifferentiatedLoss& exact) {
  GradientBias found;
  {
    const py::gil_scoped_release released;
    found = compare_gradients(approximation, exact, *Communicator::find(network.communicator().id()));
  }
  return py::make_tuple(found.bias, found.cosine, found.norm);
}

void bind_control(py::module_& m) {
  py::class_<IterationControl>(m, "IterationControl")
      .def(py::init([](bool adapt, double bound, std::int64_t every, int more_iterations, int more_relaxations) {
        return IterationControl({.adapt = adapt,
                                 .bound = bound,
                                 .every = every,
                                 .more_iterations = more_iterations,
                                 .more_relaxations = more_relaxations});
      }))
      .def("comparison_due", &IterationControl::comparison_due)
      .def("bias", &IterationControl::bias)
      .def("note_batch", &IterationControl::note_batch)
      .def("note_comparison", &IterationControl::note_comparison)
      .def("setting", [](const IterationControl& self) {
        const ControlSetting setting = self.setting();
        return py::make_tuple(setting.iterations, setting.relaxations, setting.exact);
      });
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
  std::set<std::int64_t> lent;
  for (int peer = 0; peer < ranks; ++peer) {
    for (const std::int64_t layer : plan.borrowed(peer)) {
      if (own.contains(layer)) lent.insert(layer);
    }
  }
  return py::make_tuple(own.begin, own.end, plan.borrowed(rank), lent, owners, plan.forward().levels(),
                        plan.adjoint().levels());
}

}  // namespace

Options options(const py::dict& description) {
  Options options;
  options.tf = description["tf"].cast<double>();
  options.solver = solver_of(description["solver"]);
  options.micro_batches = description["micro_batches"].cast<std::int64_t>();
  options.forward_grid = grid(description["forward_grid"]);
  options.backward_grid = grid(description["backward_grid"]);
  options.forward = multigrid::solve_options(description["forward"]);
  options.backward = multigrid::solve_options(description["backward"]);
  options.replicated = description["replicated"].cast<bool>();
  options.relinearize = description["relinearize"].cast<bool>();
  options.keep_states = description["keep_states"].cast<bool>();
  for (const auto& form : description["forms"]) options.forms.push_back(form_of(form));
  return options;
}

void bind(py::module_& m) {
  m.def("layer_parallel_plan", &plan);
  m.def("layer_parallel_refuse", &refuse);
  m.def("current_layer_seed", &current_layer_seed);
  bind_control(m);
  py::class_<DifferentiatedLoss>(m, "DifferentiatedLoss").def_readonly("loss", &DifferentiatedLoss::loss);
  py::class_<LayerParallel>(m, "LayerParallel")
      .def(py::init(&create))
      .def("forward", &forward)
      .def("loss", &loss)
      .def("loss_gradients", &loss_gradients)
      .def("compare", &compare)
      .def("record", &LayerParallel::record)
      .def("set_solvers",
           [](LayerParallel& self, const py::dict& forward, const py::dict& backward) {
             self.set_solvers(multigrid::solve_options(forward), multigrid::solve_options(backward));
           })
      .def("rebind", &LayerParallel::rebind)
      .def("rebind_shared", &LayerParallel::rebind_shared)
      .def("states", &states)
      .def("release_states", &LayerParallel::release_states)
      .def("statistics", [](const LayerParallel& self) {
        return py::make_tuple(multigrid::to_python(self.statistics().forward),
                              multigrid::to_python(self.statistics().backward));
      });
}

}  // namespace weft::layer_parallel
