// IDX, the format of MNIST: an array of any shape, big-endian, behind a header that tells type and sizes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "weft/data/file.h"

namespace weft::data {

struct IdxHeader {
  at::ScalarType type = at::kByte;
  std::vector<std::int64_t> shape;
};

// The header, from the file's beginning. Throws DataError for what is no IDX file, or shorter or longer than its header
// says: the sizes can be trusted afterwards.
[[nodiscard]] IdxHeader read_idx_header(InputFile& file);

// The array with its own type: uint8, int8, int16, int32, float32 or float64. The file may be gzipped. Throws DataError
// for one that is absent, and as read_idx_header does.
[[nodiscard]] at::Tensor read_idx(const std::filesystem::path& path);

}  // namespace weft::data
