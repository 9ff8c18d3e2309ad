// Replays of training steps for weft.plan.
#pragma once

#include <pybind11/pybind11.h>

namespace weft::planning {

void bind(pybind11::module_& m);

}  // namespace weft::planning
