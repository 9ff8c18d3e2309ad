// Translates the library's exceptions into the classes of weft.errors, by type.
#pragma once

#include <pybind11/pybind11.h>

namespace weft {

// Affects every pybind11 function that shares torch's pybind11 state: this module, torch.ops, torch.classes and
// torch.distributed. Functions that torch writes against Python's C API, such as Tensor.backward, are not pybind11
// functions: they turn these exceptions into RuntimeError with the same text.
void register_errors();

}  // namespace weft
