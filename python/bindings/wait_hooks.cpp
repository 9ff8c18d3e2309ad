#include "python/bindings/wait_hooks.h"

#include <pthread.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "weft/mpi/error.h"
#include "weft/mpi/waiter.h"

namespace py = pybind11;

namespace weft {
namespace {

// A Python exception that ends a wait. Functions of pybind11 and torch raise it unchanged.
class PythonInterrupt final : public py::error_already_set, public mpi::Interrupted {};

std::vector<std::string> g_hidden;  // guarded by the GIL
pthread_t g_main_thread{};

bool is_hidden(std::string_view file) {
  return file.starts_with("<frozen") ||
         std::any_of(g_hidden.begin(), g_hidden.end(), [&](const auto& folder) { return file.starts_with(folder); });
}

template <class Object>
py::object take(Object* object) {
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(object));
}

// The innermost frame of the thread outside of the hidden folders, e.g. "train.py:12", or an empty text.
std::string call_site_of(unsigned long thread) {
  const py::object frames = take(PyObject_CallNoArgs(PySys_GetObject("_current_frames")));
  if (!frames) throw py::error_already_set();
  const py::int_ key(thread);
  py::object frame = py::reinterpret_borrow<py::object>(PyDict_GetItem(frames.ptr(), key.ptr()));
  while (frame) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto file = take(PyFrame_GetCode(raw)).attr("co_filename").cast<std::string>();
    if (!is_hidden(file)) return file + ":" + std::to_string(PyFrame_GetLineNumber(raw));
    frame = take(PyFrame_GetBack(raw));
  }
  return "";
}

// In C++ because Python code would run signal handlers, whose exceptions cannot leave this function.
std::size_t write_call_site(unsigned long thread, char* text, std::size_t capacity) {
  const py::gil_scoped_acquire gil;
  const py::error_scope keep_error;
  try {
    const std::string site = call_site_of(thread);
    const std::size_t length = std::min(site.size(), capacity);
    site.copy(text, length, site.size() - length);
    return length;
  } catch (const std::exception&) {
    return 0;
  }
}

// Python runs signal handlers in its main thread only, and not while that thread waits in the library.
void run_signal_handlers() {
  if (pthread_equal(pthread_self(), g_main_thread) == 0) return;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw PythonInterrupt();
}

}  // namespace

void bind_wait_hooks(py::module_& m) {
  m.def("hide_call_sites", [](const std::string& folder) { g_hidden.push_back(folder); });
  m.def("is_hidden_call_site", [](const std::string& file) { return is_hidden(file); });
  m.def("install_wait_hooks", [](unsigned long main_thread) {
    g_main_thread = static_cast<pthread_t>(main_thread);
    mpi::set_call_site_hook(&write_call_site);
    mpi::set_interrupt_hook(&run_signal_handlers);
  });
  m.def("remove_wait_hooks", [] {
    mpi::set_call_site_hook(nullptr);
    mpi::set_interrupt_hook(nullptr);
  });
}

}  // namespace weft
