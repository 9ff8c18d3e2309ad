#pragma once

#include <pybind11/pybind11.h>

namespace weft::data {

void bind(pybind11::module_& m);

}  // namespace weft::data
