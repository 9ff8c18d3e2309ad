// CIFAR-10's binary form: records of a label and the red, green and blue planes of a 32 x 32 image.
#pragma once

#include <filesystem>

#include "weft/data/images.h"

namespace weft::data {

// One file, data_batch_1.bin for example. Throws DataError for one that is absent or does not consist of such records.
[[nodiscard]] LabelledImages read_cifar10(const std::filesystem::path& path);

}  // namespace weft::data
