// Hooks for waits of the library: the script line of the waiting thread, and pending signals of the interpreter.
#pragma once

#include <pybind11/pybind11.h>

namespace weft {

void bind_wait_hooks(pybind11::module_& m);

}  // namespace weft
