// Reader of IDX, the format of MNIST: a header with type and shape, then a big-endian array.
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

// Reads the header at the start of the file. Throws DataError if it is not an IDX file, or if its size differs from the
// size in the header.
[[nodiscard]] IdxHeader read_idx_header(InputFile& file);

// Reads the array with its own type: uint8, int8, int16, int32, float32 or float64. The file may be gzipped. Throws
// MissingDataError if it does not exist, and DataError like read_idx_header().
[[nodiscard]] at::Tensor read_idx(const std::filesystem::path& path);

}  // namespace weft::data
