#include "python/bindings/recorded_operation.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>
#include <vector>

#include "python/bindings/held.h"
#include "weft/collective/autograd/node.h"
#include "weft/mpi/communicator.h"

namespace py = pybind11;

namespace weft::collective {
namespace {

using Tensors = std::vector<at::Tensor>;

// Calls a Python function with the gradients of the outputs; it returns those of the inputs, or None for some of them.
struct PythonAdjoint {
  Held function;

  variable_list operator()(OperationNode& node, variable_list&& gradients) const {
    const py::gil_scoped_acquire gil;
    TORCH_CHECK(function, "weft: the graph of this operation was freed by an earlier backward; pass retain_graph=True ",
                "to the first backward");
    const py::object result = call(node, Tensors(gradients.begin(), gradients.end()));
    variable_list found;
    for (const py::handle& each : result) found.push_back(each.is_none() ? at::Tensor() : each.cast<at::Tensor>());
    return found;
  }

  void release() { function.reset(); }

 private:
  [[nodiscard]] py::object call(const OperationNode& node, const Tensors& gradients) const {
    try {
      return (*function)(gradients);
    } catch (const py::error_already_set& error) {
      const auto& communicator = node.record()->communicator;
      const py::module_ errors = py::module_::import("weft.errors");
      for (const char* shared : {"NotConverged", "LayerError", "PeerLost", "Disagreement"}) {
        if (error.matches(errors.attr(shared)) && communicator) note_informed(*communicator);
      }
      throw;
    }
  }
};

// Makes `outputs` depend on `inputs` through `adjoint`, in the order of the tape. Call it on all ranks.
// `name`: a literal, because names in error messages outlive the call.
auto recorder(const char* name) {
  return [name](std::int64_t communicator, const Tensors& inputs, const Tensors& outputs, py::object adjoint) {
    record(name, Communicator::find(communicator), inputs, outputs, PythonAdjoint{hold(std::move(adjoint))});
  };
}

}  // namespace

void bind_recorded_operation(py::module_& m) {
  m.def("record_newton", recorder("newton"));
  m.def("record_mgrit", recorder("mgrit"));
}

}  // namespace weft::collective
