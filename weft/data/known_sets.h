// Locates the files of the supported data sets.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/data/image_source.h"

namespace weft::data {

struct KnownSet {
  ImageOrigin train;
  ImageOrigin test;
  std::vector<std::string> notes;  // warnings for the user, for example about missing optional files
};

// Both take `folder` like find_folder(), open no files, and throw MissingDataError if required files are missing.
[[nodiscard]] KnownSet mnist_set(const std::optional<std::filesystem::path>& folder = std::nullopt);
// Requires data_batch_1.bin and test_batch.bin; a note mentions each other training file that is missing.
[[nodiscard]] KnownSet cifar10_set(const std::optional<std::filesystem::path>& folder = std::nullopt);

}  // namespace weft::data
