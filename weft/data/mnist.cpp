#include "weft/data/mnist.h"

#include <dlfcn.h>

#include <optional>
#include <string>
#include <system_error>

#include "weft/data/file.h"
#include "weft/data/folder.h"
#include "weft/data/known_sets.h"
#include "weft/data/part.h"

namespace weft::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdvice =
    "Download: for f in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte "
    "t10k-labels-idx1-ubyte; do curl -LO https://ossci-datasets.s3.amazonaws.com/mnist/$f.gz; done, then pass that "
    "folder or set WEFT_DATA to it; or run make env and pass no folder to use a sample of 5,000 images";

// The path of the library or program that contains this code.
fs::path own_file() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_file), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  return fs::weakly_canonical(info.dli_fname, ignored);
}

// Searches the source tree or the virtual environment that contains the library. A path compiled into the library would
// break when the tree moves.
std::optional<fs::path> sample_folder() {
  for (fs::path above = own_file(); above.has_relative_path(); above = above.parent_path()) {
    for (const char* environment : {".venv", ""}) {
      fs::path folder = above.parent_path() / environment / "share" / "weft" / "mnist";
      std::error_code ignored;
      if (fs::is_directory(folder, ignored)) return folder;
    }
  }
  return std::nullopt;
}

fs::path find(const std::optional<fs::path>& given) {
  const FolderSearch search{
      "MNIST",
      {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"},
      {"MNIST", "mnist"},
      kAdvice,
      sample_folder()};
  return find_folder(search, given);
}

}  // namespace

fs::path mnist_folder() { return find(std::nullopt); }

fs::path mnist_folder(const fs::path& folder) { return find(folder); }

bool is_mnist_sample(const fs::path& folder) {
  std::error_code ignored;
  const auto sample = sample_folder();
  return sample && fs::equivalent(folder, *sample, ignored);
}

Mnist mnist(const fs::path& folder) {
  const KnownSet set = mnist_set(folder);
  return {read_all(*set.train.open()), read_all(*set.test.open())};
}

}  // namespace weft::data
