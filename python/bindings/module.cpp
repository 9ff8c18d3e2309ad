// What torch.ops cannot carry to Python: a factory of c10d backends, and a class that calls Python back.
#include <torch/csrc/utils/pybind.h>

#include "python/bindings/layer_parallel.h"
#include "weft/process_group/group.h"

PYBIND11_MODULE(weft_bindings, m) {
  m.def("create_process_group", &weft::process_group::Group::create, pybind11::arg("options"),
        pybind11::call_guard<pybind11::gil_scoped_release>());
  weft::layer_parallel::bind(m);
}
