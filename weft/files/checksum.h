// A 64-bit checksum of bytes as they stream by: finds damage and exchanged content, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::files {

class Checksum {
 public:
  // The value depends on the bytes only, not on how they were cut into calls.
  void add(const void* data, std::size_t bytes) noexcept;
  [[nodiscard]] std::uint64_t value() const noexcept;

 private:
  void absorb(std::uint64_t word) noexcept;

  std::uint64_t state_ = 0x6A09E667F3BCC908;
  std::uint64_t word_ = 0;    // bytes that do not make a whole word yet
  std::uint64_t length_ = 0;  // of all bytes so far
};

}  // namespace weft::files
