// Random numbers per layer and pass: dropout is a pure function within a pass and differs between passes.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace weft::layer_parallel {

// Identifies the random numbers of a pass. Equal on all ranks, so that dropout masks do not depend on the distribution.
struct RandomSource {
  std::uint64_t seed = 0;  // torch's initial seed on rank 0
  std::uint64_t pass = 0;

  // The last seed of torch's default generator.
  [[nodiscard]] static std::uint64_t initial_seed();
};

// Seeds torch's default generators for each layer while it is alive. The destructor restores their state.
class RandomScope {
 public:
  RandomScope(const RandomSource& source, c10::Device device);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  // Restarts the random numbers of this layer.
  void begin(std::int64_t layer);

 private:
  RandomSource source_;
  // The generators with their original states.
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
};

}  // namespace weft::layer_parallel
