// The TensorBoard writer for weft.tensorboard.
#include "python/bindings/trace.h"

#include <pybind11/stl/filesystem.h>

#include "weft/files/error.h"
#include "weft/trace/tensorboard.h"

namespace py = pybind11;

namespace weft::trace {

void bind(py::module_& m) {
  py::register_local_exception<files::FileError>(m, "FileError", PyExc_OSError);
  py::class_<TensorBoardFile>(m, "TensorBoardFile")
      .def(py::init<std::filesystem::path, double>())
      // Values beyond the range of a float become infinite.
      .def("add_scalar", [](TensorBoardFile& self, const std::string& tag, std::int64_t step, double value,
                            double wall_time) { self.add_scalar(tag, step, static_cast<float>(value), wall_time); });
}

}  // namespace weft::trace
