#include "weft/data/mnist.h"

#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "weft/data/file.h"
#include "weft/data/idx.h"

namespace weft::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kClasses = 10;
constexpr const char* kTrainImages = "train-images-idx3-ubyte";
constexpr const char* kTrainLabels = "train-labels-idx1-ubyte";
constexpr const char* kTestImages = "t10k-images-idx3-ubyte";
constexpr const char* kTestLabels = "t10k-labels-idx1-ubyte";

// Gzipped files count: reading them then fails with the advice to unpack them.
bool holds_mnist(const fs::path& folder) {
  std::error_code ignored;
  const fs::path file = folder / kTrainImages;
  return fs::exists(file, ignored) || fs::exists(file.string() + ".gz", ignored);
}

fs::path folder_in(const fs::path& data) {
  for (const fs::path& folder : {data, data / "MNIST", data / "mnist"}) {
    if (holds_mnist(folder)) return folder;
  }
  throw DataError("weft: expected WEFT_DATA to name a folder with " + std::string(kTrainImages) +
                  ", in itself or in MNIST or mnist, got " + quoted(data) +
                  "; without WEFT_DATA there is the sample that make env writes");
}

// Of the library, or of the program that this code is linked into.
fs::path own_file() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_file), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  return fs::weakly_canonical(info.dli_fname, ignored);
}

// In the source tree that the library was built in, or the environment that it is installed in: no path has to be built
// into the library, which would not survive a move.
std::optional<fs::path> sample_folder() {
  for (fs::path above = own_file(); above.has_relative_path(); above = above.parent_path()) {
    for (const char* environment : {".venv", ""}) {
      const fs::path folder = above.parent_path() / environment / "share" / "weft" / "mnist";
      if (holds_mnist(folder)) return folder;
    }
  }
  return std::nullopt;
}

}  // namespace

fs::path mnist_folder() {
  const char* data = std::getenv("WEFT_DATA");
  if (data != nullptr && *data != '\0') return folder_in(data);
  if (const auto sample = sample_folder()) return *sample;
  throw DataError(
      "weft: expected the sample of MNIST in share/weft/mnist of the environment, got no such folder; run make env, or "
      "set WEFT_DATA to a folder with MNIST's four files");
}

Mnist mnist(const fs::path& folder) {
  const auto load = [&](const char* images, const char* labels) {
    at::Tensor pixels = read_idx(folder / images);
    return pair_up(std::move(pixels), read_idx(folder / labels), kClasses,
                   quoted(folder / images) + " and " + quoted(labels));
  };
  return {load(kTrainImages, kTrainLabels), load(kTestImages, kTestLabels)};
}

}  // namespace weft::data
