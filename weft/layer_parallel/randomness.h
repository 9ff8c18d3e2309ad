// Random numbers that belong to a layer and a pass: dropout is then a fixed function within a pass, new in the next.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace weft::layer_parallel {

// Which numbers a pass uses. The same on all ranks, so that masks do not depend on the split.
struct RandomSource {
  std::uint64_t seed = 0;  // torch's initial seed on the first rank
  std::uint64_t pass = 0;

  // What torch's default generator was last seeded with.
  [[nodiscard]] static std::uint64_t initial_seed();
};

// While it lives, layers draw from torch's default generators as `begin` sets them; afterwards those go on for the user
// as if nothing had been drawn.
class RandomScope {
 public:
  RandomScope(const RandomSource& source, c10::Device device);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  // From here on the numbers of this layer, from their beginning.
  void begin(std::int64_t layer);

 private:
  RandomSource source_;
  // Each with its state as the user left it.
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
};

}  // namespace weft::layer_parallel
