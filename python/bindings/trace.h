#pragma once

#include <pybind11/pybind11.h>

namespace weft::trace {

void bind(pybind11::module_& m);

}  // namespace weft::trace
