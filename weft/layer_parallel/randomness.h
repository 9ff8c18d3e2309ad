// Random numbers per layer and pass: dropout is a pure function within a pass and differs between passes.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace weft::layer_parallel {

// The seed of a pass is the next number of torch's default generator on rank 0, so torch.manual_seed determines it.
// Equal on all ranks, so that dropout masks do not depend on the distribution. Not negative.
using PassSeed = std::int64_t;

// Returns the seed of the next pass on this rank, without drawing it.
[[nodiscard]] PassSeed next_pass_seed();
// Draws the number that next_pass_seed() returned. Ranks call it after a pass in which a layer used random numbers, so
// that the next pass differs.
void draw_pass_seed();

// Returns the seed of the layer that this thread evaluates; it does not depend on the micro-batch. Layers that draw
// random numbers per sample derive them from it, so that a mask does not depend on the division of the batch. Empty
// outside a pass.
[[nodiscard]] std::optional<std::uint64_t> current_layer_seed();

// Seeds torch's default generators for each layer while it is alive. The destructor restores their state.
class RandomScope {
 public:
  RandomScope(PassSeed seed, c10::Device device);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  // Makes begin() use the numbers of this micro-batch. Micro-batch 0 has the numbers of a pass without micro-batches.
  void set_micro_batch(std::int64_t number) { micro_batch_ = number; }
  // Restarts the random numbers of this layer.
  void begin(std::int64_t layer);
  // Whether any layer used random numbers.
  [[nodiscard]] bool used();

 private:
  void note_use();

  PassSeed seed_;
  std::int64_t micro_batch_ = 0;
  // The generators with their original states.
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
  bool begun_ = false;
  bool used_ = false;
  std::optional<std::uint64_t> outer_;  // current_layer_seed() before this scope
};

}  // namespace weft::layer_parallel
