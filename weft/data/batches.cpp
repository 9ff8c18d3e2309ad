#include "weft/data/batches.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include "weft/data/batch_order.h"

namespace weft::data {
namespace {

// Folds all bits of seed and epoch into the lower 32 bits, the only ones that torch's generator uses.
std::uint64_t seed_of_epoch(std::uint64_t seed, std::int64_t epoch) {
  const std::uint64_t mixed = seed * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(epoch);
  return mixed ^ (mixed >> 32);
}

}  // namespace

std::vector<at::Tensor> shuffled_batches(std::int64_t count, std::int64_t epoch, const BatchOptions& options) {
  require_at_least("count", 0, count);
  require_at_least("epoch", 0, epoch);
  require_at_least("batch size", 1, options.size);
  if (count == 0) return {};
  const at::Generator generator = at::detail::createCPUGenerator(seed_of_epoch(options.seed, epoch));
  auto batches = at::randperm(count, generator, at::kLong).split(options.size);
  if (options.drop_last && batches.back().numel() < options.size) batches.pop_back();
  return batches;
}

}  // namespace weft::data
