#include "weft/layer_parallel/randomness.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include "weft/partition/scramble.h"

namespace weft::layer_parallel {
namespace {

using partition::scramble;

// Adjacent layers and passes must not have adjacent seeds.
std::uint64_t seed_for(const RandomSource& source, std::int64_t layer) noexcept {
  return scramble(scramble(scramble(source.seed) + source.pass) + static_cast<std::uint64_t>(layer));
}

}  // namespace

std::uint64_t RandomSource::initial_seed() { return at::detail::getDefaultCPUGenerator().current_seed(); }

RandomScope::RandomScope(const RandomSource& source, c10::Device device) : source_(source) {
  std::vector<at::Generator> generators{at::detail::getDefaultCPUGenerator()};
  if (!device.is_cpu()) generators.push_back(at::globalContext().defaultGenerator(device));
  for (auto& generator : generators) {
    const std::lock_guard lock(generator.mutex());
    generators_.emplace_back(generator, generator.get_state());
  }
}

RandomScope::~RandomScope() {
  for (auto& [generator, before] : generators_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(before);
  }
}

void RandomScope::begin(std::int64_t layer) {
  for (auto& [generator, before] : generators_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed_for(source_, layer));
  }
}

}  // namespace weft::layer_parallel
