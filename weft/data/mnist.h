// Locates and reads MNIST.
#pragma once

#include <filesystem>

#include "weft/data/images.h"

namespace weft::data {

struct Mnist {
  LabelledImages train;
  LabelledImages test;
};

// Returns the folder with MNIST's four files, plain or gzipped. Searches $WEFT_DATA, $WEFT_DATA/MNIST and
// $WEFT_DATA/mnist if the variable is set; otherwise returns the sample of 5,000 images that `make env` installs,
// located relative to libweft. Throws MissingDataError, listing the missing files.
[[nodiscard]] std::filesystem::path mnist_folder();
// Searches only `folder`, `folder`/MNIST and `folder`/mnist.
[[nodiscard]] std::filesystem::path mnist_folder(const std::filesystem::path& folder);

// Returns whether `folder` is the sample that `make env` installs.
[[nodiscard]] bool is_mnist_sample(const std::filesystem::path& folder);

// Reads the whole set. Throws DataError if files are missing or invalid.
[[nodiscard]] Mnist mnist(const std::filesystem::path& folder = mnist_folder());

}  // namespace weft::data
