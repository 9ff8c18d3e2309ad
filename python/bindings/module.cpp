// The Python module weft_bindings: everything that torch.ops cannot express. It translates exceptions, creates c10d
// backends, and calls back into Python.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "python/bindings/data.h"
#include "python/bindings/errors.h"
#include "python/bindings/layer_parallel.h"
#include "python/bindings/multigrid.h"
#include "python/bindings/planning.h"
#include "python/bindings/recorded_operation.h"
#include "python/bindings/trace.h"
#include "python/bindings/wait_hooks.h"
#include "weft/partition/range.h"
#include "weft/process_group/mpi/group.h"
#include "weft/process_group/sml/group.h"

PYBIND11_MODULE(weft_bindings, m) {
  weft::register_errors();
  weft::bind_wait_hooks(m);
  m.def("create_process_group", &weft::process_group::MpiGroup::create, pybind11::arg("options"),
        pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def("sml_fallback", &weft::process_group::SmlGroup::fallback_for, pybind11::arg("options"), pybind11::arg("usual"),
        pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def("create_sml_process_group", &weft::process_group::SmlGroup::create, pybind11::arg("options"),
        pybind11::arg("fallback"), pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def("sml_statistics", [](const c10::intrusive_ptr<c10d::Backend>& backend) {
    const auto group = c10::dynamic_intrusive_pointer_cast<weft::process_group::SmlGroup>(backend);
    TORCH_CHECK(group, "sml: expected a process group with backend 'sml', got '", backend->getBackendName(), "'");
    return group->statistics();
  });
  weft::data::bind(m);
  m.def("balanced_range", [](std::int64_t total, std::int64_t parts, std::int64_t index) {
    const auto range = weft::partition::balanced(total, parts, index);
    return std::pair(range.begin, range.end);
  });
  weft::layer_parallel::bind(m);
  weft::multigrid::bind(m);
  weft::planning::bind(m);
  weft::collective::bind_recorded_operation(m);
  weft::trace::bind(m);
}
