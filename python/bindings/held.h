// Python objects that C++ keeps.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

namespace weft {

// A Python object that any thread may release.
using Held = std::shared_ptr<pybind11::object>;

inline Held hold(pybind11::object object) {
  return {new pybind11::object(std::move(object)), [](pybind11::object* held) {
            if (!Py_IsInitialized()) return;  // a thread's tape outlives the interpreter
            const pybind11::gil_scoped_acquire gil;
            delete held;
          }};
}

}  // namespace weft
