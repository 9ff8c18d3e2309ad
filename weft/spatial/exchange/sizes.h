// Lists of sizes, offsets or strides, one for each dimension.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::spatial {

using Sizes = std::vector<std::int64_t>;

}  // namespace weft::spatial
