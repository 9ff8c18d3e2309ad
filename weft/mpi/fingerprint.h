// Fingerprint: a 64-bit hash that ranks compare instead of the values themselves.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace weft::mpi {

// The order of add() calls matters. Values are comparable only between processes of the same build.
class Fingerprint {
 public:
  Fingerprint() = default;
  explicit Fingerprint(std::string_view text) noexcept { add(text); }

  Fingerprint& add(std::integral auto value) noexcept { return fold(static_cast<std::uint64_t>(value)); }
  Fingerprint& add(double value) noexcept { return fold(std::bit_cast<std::uint64_t>(value)); }
  template <class T>
    requires std::is_enum_v<T>
  Fingerprint& add(T value) noexcept {
    return fold(static_cast<std::uint64_t>(value));
  }
  Fingerprint& add(std::string_view text) noexcept {
    fold(text.size());
    for (; !text.empty(); text.remove_prefix(std::min(text.size(), sizeof(std::uint64_t)))) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data(), std::min(text.size(), sizeof word));
      fold(word);
    }
    return *this;
  }

  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  // A bijection of `bits`, so two sequences that differ in one value never collide.
  Fingerprint& fold(std::uint64_t bits) noexcept {
    value_ = (value_ ^ bits) * 0xff51afd7ed558ccd;
    value_ ^= value_ >> 32;
    return *this;
  }

  std::uint64_t value_ = 0x9e3779b97f4a7c15;
};

}  // namespace weft::mpi
