// LayerParallel for Python, whose layers are Python callables.
#pragma once

#include <pybind11/pybind11.h>

namespace weft::layer_parallel {

void bind(pybind11::module_& m);

}  // namespace weft::layer_parallel
