// MNIST: where its files are, and what is in them.
#pragma once

#include <filesystem>

#include "weft/data/images.h"

namespace weft::data {

struct Mnist {
  LabelledImages train;
  LabelledImages test;
};

// The folder with MNIST's four files. If the environment variable WEFT_DATA names a folder: that, or MNIST or mnist in
// it. Otherwise the sample of 5,000 images that `make env` writes, found from where libweft is. Throws DataError where
// none is.
[[nodiscard]] std::filesystem::path mnist_folder();

// The four IDX files, plain, of a folder. Throws DataError for what is absent or does not fit.
[[nodiscard]] Mnist mnist(const std::filesystem::path& folder = mnist_folder());

}  // namespace weft::data
