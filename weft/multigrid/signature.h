// Folds values into one number that ranks compare instead of the values.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>

#include "weft/partition/scramble.h"

namespace weft::multigrid {

class Signature {
 public:
  Signature& add(std::integral auto value) { return fold(static_cast<std::uint64_t>(value)); }
  Signature& add(double value) { return fold(std::bit_cast<std::uint64_t>(value)); }
  template <class T>
    requires std::is_enum_v<T>
  Signature& add(T value) {
    return fold(static_cast<std::uint64_t>(value));
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  Signature& fold(std::uint64_t bits) noexcept {
    value_ = partition::scramble(value_ ^ (bits + 0x9e3779b97f4a7c15ULL + (value_ << 6) + (value_ >> 2)));
    return *this;
  }
  std::uint64_t value_ = 0;
};

}  // namespace weft::multigrid
