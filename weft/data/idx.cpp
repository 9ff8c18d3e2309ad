#include "weft/data/idx.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::data {
namespace {

// Two zeros, the type code, the number of dimensions.
using Magic = std::array<std::uint8_t, 4>;

struct Type {
  std::uint8_t code;
  at::ScalarType dtype;
};

constexpr std::array<Type, 6> kTypes{{{0x08, at::kByte},
                                      {0x09, at::kChar},
                                      {0x0B, at::kShort},
                                      {0x0C, at::kInt},
                                      {0x0D, at::kFloat},
                                      {0x0E, at::kDouble}}};

at::ScalarType type_of(const Magic& magic, const InputFile& file) {
  const auto* type =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& known) { return known.code == magic[2]; });
  if (magic[0] != 0 || magic[1] != 0 || type == kTypes.end()) {
    std::string got;
    for (const int byte : magic) got.append(" ").append(std::to_string(byte));
    file.fail("not an IDX file: it starts with the bytes" + got +
              ", expected 0 0 and a type code of 8, 9, 11, 12, 13 or 14");
  }
  return type->dtype;
}

std::vector<std::int64_t> read_shape(std::uint8_t dimensions, InputFile& file) {
  std::vector<std::int64_t> shape;
  for (int i = 0; i < dimensions; ++i) {
    std::array<std::uint8_t, 4> size{};
    file.read(size.data(), size.size());
    shape.push_back(std::int64_t{size[0]} << 24 | size[1] << 16 | size[2] << 8 | size[3]);
  }
  return shape;
}

// Returns the number of items, capped at `limit` + 1, since sizes from a damaged header may overflow 64 bits.
std::int64_t count_up_to(std::int64_t limit, const std::vector<std::int64_t>& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (count > limit / size) return limit + 1;
    count *= size;
  }
  return count;
}

void check_length(std::int64_t header, const std::vector<std::int64_t>& shape, std::int64_t item_size,
                  InputFile& file) {
  const std::int64_t data = file.size() - header;
  const std::int64_t items = count_up_to(data / item_size, shape);
  if (items * item_size == data) return;
  std::string sizes;
  for (const std::int64_t size : shape) sizes.append(sizes.empty() ? "" : " x ").append(std::to_string(size));
  file.fail(std::string(items * item_size > data ? "truncated" : "too long") + ": the header describes " + sizes +
            " items of " + std::to_string(item_size) + " bytes, got " + std::to_string(data) + " bytes of data");
}

void swap_bytes(void* data, std::int64_t items, std::int64_t item_size) {
  auto* item = static_cast<std::byte*>(data);
  for (std::int64_t i = 0; i < items; ++i, item += item_size) std::reverse(item, item + item_size);
}

}  // namespace

IdxHeader read_idx_header(InputFile& file) {
  (void)file.size();  // must be called before read()
  Magic magic{};
  file.read(magic.data(), magic.size());
  IdxHeader header{type_of(magic, file), read_shape(magic[3], file)};
  const auto item_size = static_cast<std::int64_t>(c10::elementSize(header.type));
  check_length(4 + 4 * static_cast<std::int64_t>(header.shape.size()), header.shape, item_size, file);
  return header;
}

at::Tensor read_idx(const std::filesystem::path& path) {
  InputFile file(path);
  const IdxHeader header = read_idx_header(file);
  const auto item_size = static_cast<std::int64_t>(c10::elementSize(header.type));
  at::Tensor array = at::empty(header.shape, header.type);
  file.read(array.mutable_data_ptr(), array.numel() * item_size);
  if constexpr (std::endian::native == std::endian::little) {
    if (item_size > 1) swap_bytes(array.mutable_data_ptr(), array.numel(), item_size);
  }
  return array;
}

}  // namespace weft::data
