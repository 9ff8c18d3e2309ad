// LayerParallel for Python, whose layers are Python callables.
#pragma once

#include <pybind11/pybind11.h>

#include "weft/layer_parallel/network.h"

namespace weft::layer_parallel {

// From the description that LayerParallel creates in Python.
[[nodiscard]] Options options(const pybind11::dict& description);

void bind(pybind11::module_& m);

}  // namespace weft::layer_parallel
