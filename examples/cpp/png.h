// Writes an RGB image as an uncompressed PNG file, without a library.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace png {

inline std::uint32_t crc32(std::string_view data) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : data) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
  }
  return ~crc;
}

inline std::string big_endian(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(value >> shift & 0xff));
  return text;
}

inline std::string chunk(const std::string& kind, const std::string& data) {
  const std::string body = kind + data;
  return big_endian(static_cast<std::uint32_t>(data.size())) + body + big_endian(crc32(body));
}

// zlib's format with stored blocks of at most 65,535 bytes.
inline std::string stored(const std::string& data) {
  std::string result = "\x78\x01";
  for (std::size_t first = 0; first < data.size(); first += 65'535) {
    const std::string block = data.substr(first, 65'535);
    const auto size = static_cast<std::uint16_t>(block.size());
    const auto inverse = static_cast<std::uint16_t>(~size);
    result.push_back(first + block.size() == data.size() ? 1 : 0);
    for (const std::uint16_t number : {size, inverse}) {
      result.push_back(static_cast<char>(number & 0xff));
      result.push_back(static_cast<char>(number >> 8));
    }
    result += block;
  }
  std::uint32_t a = 1, b = 0;
  for (const char byte : data) {
    a = (a + static_cast<unsigned char>(byte)) % 65'521;
    b = (b + a) % 65'521;
  }
  return result + big_endian(b << 16 | a);
}

// rgb: 3 bytes per pixel in row-major order. Returns false if the file cannot be written.
inline bool write(const std::string& path, const std::vector<unsigned char>& rgb, std::uint32_t width) {
  const auto height = static_cast<std::uint32_t>(rgb.size() / 3 / width);
  std::string rows;
  for (std::uint32_t y = 0; y < height; ++y) {
    rows.push_back(0);  // no filter
    rows.append(rgb.begin() + static_cast<std::ptrdiff_t>(y) * 3 * width,
                rgb.begin() + static_cast<std::ptrdiff_t>(y + 1) * 3 * width);
  }
  const std::string header = big_endian(width) + big_endian(height) + std::string("\x08\x02\x00\x00\x00", 5);
  const std::string data =
      "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", stored(rows)) + chunk("IEND", "");
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool written = std::fwrite(data.data(), 1, data.size(), file) == data.size();
  return std::fclose(file) == 0 && written;
}

}  // namespace png
