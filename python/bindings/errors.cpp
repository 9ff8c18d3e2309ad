#include "python/bindings/errors.h"

#include <torch/csrc/Exceptions.h>

#include <exception>
#include <string>

#include "weft/layer_parallel/evaluator.h"
#include "weft/layer_parallel/pipeline.h"
#include "weft/mpi/error.h"
#include "weft/multigrid/error.h"

namespace py = pybind11;

namespace weft {
namespace {

// The Python exception at the end of a chain of nested exceptions, or None.
py::object python_cause(const std::exception& error) {
  const auto* nested = dynamic_cast<const std::nested_exception*>(&error);
  if (nested == nullptr || nested->nested_ptr() == nullptr) return py::none();
  try {
    nested->rethrow_nested();
  } catch (const py::error_already_set& raised) {
    const py::object value = raised.value();
    if (raised.trace()) PyException_SetTraceback(value.ptr(), raised.trace().ptr());
    return value;
  } catch (const python_error& raised) {  // from autograd
    PyObject* type = Py_XNewRef(raised.type);
    PyObject* value = Py_XNewRef(raised.value);
    PyObject* trace = Py_XNewRef(raised.traceback);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value != nullptr && trace != nullptr) PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value != nullptr ? py::reinterpret_steal<py::object>(value) : py::none();
  } catch (const std::exception& inner) {
    return python_cause(inner);
  } catch (...) {
    return py::none();
  }
}

// Raises the class `name` of weft.errors, or, on the rank of a KeyboardInterrupt, a SystemExit or the like, that
// exception.
template <class... More>
void raise(const char* name, const std::exception& error, const More&... more) {
  const py::object cause = python_cause(error);
  if (!cause.is_none() && PyObject_IsInstance(cause.ptr(), PyExc_Exception) == 0) {
    PyErr_SetObject(py::type::handle_of(cause).ptr(), cause.ptr());
    return;
  }
  const py::object type = py::module_::import("weft.errors").attr(name);
  const py::object instance = type(error.what(), more...);
  if (!cause.is_none()) instance.attr("__cause__") = cause;
  PyErr_SetObject(type.ptr(), instance.ptr());
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const mpi::TimeoutError& error) {
    raise("TimeoutError", error);
  } catch (const mpi::MpiError& error) {
    raise("MpiError", error);
  } catch (const mpi::PeerLost& error) {
    raise("PeerLost", error, error.rank());
  } catch (const mpi::Disagreement& error) {
    raise("Disagreement", error);
  } catch (const multigrid::SolveError& error) {
    raise("LayerError", error);
  } catch (const layer_parallel::PipelineError& error) {
    raise("LayerError", error);
  } catch (const layer_parallel::LayerError& error) {
    raise("LayerError", error);
  }
}

}  // namespace

void register_errors() { py::register_exception_translator(&translate); }

}  // namespace weft
