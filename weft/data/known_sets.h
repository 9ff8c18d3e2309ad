// The sets that weft knows by name: where their files are, and what opens them.
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
  std::vector<std::string> notes;  // what a user should know: files that are absent but not needed
};

// `folder` as find_folder takes it. Nothing is opened yet. Both throw DataError where files are missing.
[[nodiscard]] KnownSet mnist_set(const std::optional<std::filesystem::path>& folder = std::nullopt);
// Of the five training files at least data_batch_1.bin; those that are absent are in the notes.
[[nodiscard]] KnownSet cifar10_set(const std::optional<std::filesystem::path>& folder = std::nullopt);

}  // namespace weft::data
