// Readers, shards and batch orders for weft.data.
#include "python/bindings/data.h"

#include <ATen/ops/empty.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <torch/csrc/utils/pybind.h>

#include <cstring>
#include <exception>
#include <utility>

#include "weft/data/batch_order.h"
#include "weft/data/batches.h"
#include "weft/data/cifar.h"
#include "weft/data/file.h"
#include "weft/data/idx.h"
#include "weft/data/mnist.h"
#include "weft/files/checksum.h"

namespace py = pybind11;

namespace weft::data {
namespace {

using Numbers = std::vector<std::int64_t>;
using Pair = std::pair<at::Tensor, at::Tensor>;
using Released = py::call_guard<py::gil_scoped_release>;

Pair pair_of(const LabelledImages& images) { return {images.images, images.labels}; }

at::Tensor tensor_of(const Numbers& numbers) {
  at::Tensor result = at::empty({std::ssize(numbers)}, at::kLong);
  if (!numbers.empty()) std::memcpy(result.mutable_data_ptr(), numbers.data(), numbers.size() * sizeof(std::int64_t));
  return result;
}

std::vector<at::Tensor> epoch(const BatchOrder& order, std::int64_t number, std::int64_t begin, std::int64_t end) {
  std::vector<at::Tensor> batches;
  for (const Numbers& batch : order.epoch(number, {begin, end})) batches.push_back(tensor_of(batch));
  return batches;
}

void translate(std::exception_ptr exception) {
  try {
    if (exception) std::rethrow_exception(exception);
  } catch (const MissingDataError& error) {
    py::set_error(PyExc_FileNotFoundError, error.what());
  } catch (const DataError& error) {
    py::set_error(PyExc_ValueError, error.what());
  }
}

}  // namespace

void bind(py::module_& m) {
  py::register_local_exception_translator(&translate);
  m.def("checksum", [](const py::buffer& data) {
    const py::buffer_info info = data.request();
    return files::checksum_text(info.ptr, static_cast<std::size_t>(info.size * info.itemsize));
  });
  m.def("read_idx", &read_idx, Released());
  m.def("read_cifar10", [](const std::filesystem::path& path) { return pair_of(read_cifar10(path)); }, Released());
  m.def("mnist_folder", [] { return mnist_folder(); });
  m.def(
      "mnist",
      [](const std::filesystem::path& folder) {
        const Mnist set = mnist(folder);
        return std::pair(pair_of(set.train), pair_of(set.test));
      },
      Released());
  m.def(
      "shard",
      [](const at::Tensor& whole, std::int64_t parts, std::int64_t index, std::int64_t dim) {
        return shard(whole, parts, index, dim);
      },
      Released());
  m.def(
      "shuffled_batches",
      [](std::int64_t count, std::int64_t epoch, std::int64_t size, std::uint64_t seed, bool drop_last) {
        return shuffled_batches(count, epoch, {size, seed, drop_last});
      },
      Released());
  m.def("sample",
        [](std::int64_t count, double percent, std::uint64_t seed) { return tensor_of(sample(count, percent, seed)); });
  py::class_<BatchOrder>(m, "BatchOrder")
      .def(py::init([](std::int64_t count, std::int64_t size, std::uint64_t seed, bool shuffle, bool drop_last) {
        return BatchOrder(count, {size, seed, shuffle, drop_last});
      }))
      .def("batches", &BatchOrder::batches)
      .def("lanes",
           [](const BatchOrder& self, std::int64_t parts, std::int64_t index) {
             const partition::Range lanes = self.lanes(parts, index);
             return std::pair(lanes.begin, lanes.end);
           })
      .def("owned", [](const BatchOrder& self, std::int64_t begin,
                       std::int64_t end) { return tensor_of(self.owned({begin, end})); })
      .def("epoch", &epoch);
}

}  // namespace weft::data
