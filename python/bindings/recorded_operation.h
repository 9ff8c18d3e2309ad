// Python functions as adjoints on weft's tape.
#pragma once

#include <pybind11/pybind11.h>

namespace weft::collective {

void bind_recorded_operation(pybind11::module_& m);

}  // namespace weft::collective
