// Random numbers derived from a seed and coordinates, independent of the number of ranks and of torch's generator.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <utility>
#include <vector>

#include "weft/partition/scramble.h"

namespace weft::data {

// SplitMix64. Streams with different `coordinates`, such as epoch and lane, are independent.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::initializer_list<std::int64_t> coordinates)
      : state_(partition::scramble(seed + kGolden)) {
    for (const std::int64_t coordinate : coordinates) {
      state_ = partition::scramble(state_ + kGolden + static_cast<std::uint64_t>(coordinate));
    }
  }

  std::uint64_t next() noexcept { return partition::scramble(state_ += kGolden); }

  // Returns a number in [0, bound): the upper half of a 128-bit product. The bias is below 2^-24 for bounds up to 2^40.
  std::int64_t below(std::int64_t bound) noexcept {
    using Wide = unsigned __int128;
    return static_cast<std::int64_t>((Wide{next()} * static_cast<std::uint64_t>(bound)) >> 64);
  }

  // Returns a number in [0, 1), or in [low, high).
  double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  double uniform(double low, double high) noexcept { return low + (high - low) * uniform(); }

  double normal() noexcept {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

  void shuffle(std::vector<std::int64_t>& items) noexcept {
    for (auto i = std::ssize(items) - 1; i > 0; --i) std::swap(items[i], items[below(i + 1)]);
  }

 private:
  static constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
  std::uint64_t state_;
};

}  // namespace weft::data
