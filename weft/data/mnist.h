// MNIST: where its files are, and what is in them.
#pragma once

#include <filesystem>

#include "weft/data/images.h"

namespace weft::data {

struct Mnist {
  LabelledImages train;
  LabelledImages test;
};

// The folder with MNIST's four files, plain or gzipped. If the environment variable WEFT_DATA names a folder: that, or
// MNIST or mnist in it. Otherwise the sample of 5,000 images that `make env` writes, found from where libweft is.
// Throws DataError where they are not, with what is missing.
[[nodiscard]] std::filesystem::path mnist_folder();
// The same in `folder`, or MNIST or mnist in it, only.
[[nodiscard]] std::filesystem::path mnist_folder(const std::filesystem::path& folder);

// All of it. Throws DataError for what is absent or does not fit.
[[nodiscard]] Mnist mnist(const std::filesystem::path& folder = mnist_folder());

}  // namespace weft::data
