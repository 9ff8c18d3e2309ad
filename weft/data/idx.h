// IDX, the format of MNIST: an array of any shape, big-endian, behind a header that tells type and sizes.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

namespace weft::data {

// The array with its own type: uint8, int8, int16, int32, float32 or float64. Throws DataError for a file that is
// absent, no IDX file, or shorter or longer than its header says.
[[nodiscard]] at::Tensor read_idx(const std::filesystem::path& path);

}  // namespace weft::data
