// What torch.ops cannot carry to Python: a factory of c10d backends, and a class that calls Python back.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "python/bindings/layer_parallel.h"
#include "weft/process_group/group.h"
#include "weft/process_group/sml_group.h"

PYBIND11_MODULE(weft_bindings, m) {
  m.def("create_process_group", &weft::process_group::Group::create, pybind11::arg("options"),
        pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def("sml_fallback", &weft::process_group::SmlGroup::fallback_for, pybind11::arg("options"), pybind11::arg("usual"),
        pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def("create_sml_process_group", &weft::process_group::SmlGroup::create, pybind11::arg("options"),
        pybind11::arg("fallback"), pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def("sml_statistics", [](const c10::intrusive_ptr<c10d::Backend>& backend) {
    const auto group = c10::dynamic_intrusive_pointer_cast<weft::process_group::SmlGroup>(backend);
    TORCH_CHECK(group, "sml: this process group's backend is '", backend->getBackendName(), "', not 'sml'");
    return group->statistics();
  });
  weft::layer_parallel::bind(m);
}
