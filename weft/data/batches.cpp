#include "weft/data/batches.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <c10/util/Exception.h>

namespace weft::data {
namespace {

// Torch's generator looks at the lower 32 bits of a seed only: all of seed and epoch have to arrive there.
std::uint64_t seed_of_epoch(std::uint64_t seed, std::int64_t epoch) {
  const std::uint64_t mixed = seed * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(epoch);
  return mixed ^ (mixed >> 32);
}

}  // namespace

std::vector<at::Tensor> shuffled_batches(std::int64_t count, std::int64_t epoch, const BatchOptions& options) {
  TORCH_CHECK(count >= 0, "weft: expected a count of at least 0, got ", count);
  TORCH_CHECK(epoch >= 0, "weft: expected an epoch of at least 0, got ", epoch);
  TORCH_CHECK(options.size >= 1, "weft: expected batches of at least 1, got ", options.size);
  if (count == 0) return {};
  const at::Generator generator = at::detail::createCPUGenerator(seed_of_epoch(options.seed, epoch));
  auto batches = at::randperm(count, generator, at::kLong).split(options.size);
  if (options.drop_last && batches.back().numel() < options.size) batches.pop_back();
  return batches;
}

}  // namespace weft::data
