#include "weft/data/known_sets.h"

#include <memory>
#include <system_error>

#include "weft/data/cifar.h"
#include "weft/data/file.h"
#include "weft/data/folder.h"
#include "weft/data/idx_images.h"
#include "weft/data/mnist.h"

namespace weft::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDigits = 10;

ImageOrigin idx_origin(const fs::path& folder, const std::string& prefix, const std::string& portion) {
  const fs::path images = plain_or_gzipped(folder / (prefix + "-images-idx3-ubyte"));
  const fs::path labels = plain_or_gzipped(folder / (prefix + "-labels-idx1-ubyte"));
  return {"MNIST", portion, {images, labels}, [=] { return std::make_unique<IdxImages>(images, labels, kDigits); }};
}

ImageOrigin cifar_origin(std::vector<fs::path> files, const std::string& portion) {
  auto open = [files] { return std::make_unique<CifarImages>(files); };
  return {"CIFAR-10", portion, std::move(files), std::move(open)};
}

constexpr const char* kCifarAdvice =
    "Download: curl -LO https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz && tar xzf cifar-10-binary.tar.gz, "
    "then pass the folder cifar-10-batches-bin, or set WEFT_DATA to its parent folder";

}  // namespace

KnownSet mnist_set(const std::optional<fs::path>& folder) {
  const fs::path place = folder ? mnist_folder(*folder) : mnist_folder();
  KnownSet set{idx_origin(place, "train", "train"), idx_origin(place, "t10k", "test"), {}};
  if (is_mnist_sample(place)) {
    set.notes.emplace_back(
        "using a small sample of MNIST; for meaningful errors, set WEFT_DATA to a folder with all of MNIST");
  }
  return set;
}

KnownSet cifar10_set(const std::optional<fs::path>& folder) {
  const FolderSearch search{
      "CIFAR-10", {"data_batch_1.bin", "test_batch.bin"}, {"CIFAR10", "cifar10", "cifar-10-batches-bin"}, kCifarAdvice};
  const fs::path place = find_folder(search, folder);
  std::vector<fs::path> train;
  std::vector<std::string> notes;
  for (int i = 1; i <= 5; ++i) {
    const fs::path file = plain_or_gzipped(place / ("data_batch_" + std::to_string(i) + ".bin"));
    std::error_code ignored;
    if (fs::exists(file, ignored)) {
      train.push_back(file);
    } else {
      notes.push_back(quoted(file) + " is missing; training uses the other files");
    }
  }
  return {cifar_origin(std::move(train), "train"), cifar_origin({plain_or_gzipped(place / "test_batch.bin")}, "test"),
          std::move(notes)};
}

}  // namespace weft::data
