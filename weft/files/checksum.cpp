#include "weft/files/checksum.h"

#include "weft/partition/scramble.h"

namespace weft::files {

void Checksum::absorb(std::uint64_t word) noexcept { state_ = partition::scramble(state_ ^ word) + 0x9E3779B97F4A7C15; }

void Checksum::add(const void* data, std::size_t bytes) noexcept {
  const auto* next = static_cast<const unsigned char*>(data);
  const auto* const end = next + bytes;
  const auto add_byte = [&] {
    word_ |= std::uint64_t{*next++} << (8 * (length_ % 8));
    if (++length_ % 8 == 0) {
      absorb(word_);
      word_ = 0;
    }
  };
  while (next != end && length_ % 8 != 0) add_byte();
  for (; end - next >= 8; next += 8, length_ += 8) {
    std::uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word |= std::uint64_t{next[i]} << (8 * i);
    absorb(word);
  }
  while (next != end) add_byte();
}

std::uint64_t Checksum::value() const noexcept {
  Checksum closed = *this;
  closed.absorb(word_);
  closed.absorb(length_);
  return closed.state_;
}

}  // namespace weft::files
