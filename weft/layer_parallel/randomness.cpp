#include "weft/layer_parallel/randomness.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <limits>

#include "weft/partition/scramble.h"

namespace weft::layer_parallel {
namespace {

using partition::scramble;

// Adjacent layers and micro-batches must not have adjacent seeds.
std::uint64_t seed_for(PassSeed seed, std::int64_t micro_batch, std::int64_t layer) noexcept {
  auto pass = static_cast<std::uint64_t>(seed);
  if (micro_batch > 0) pass = scramble(scramble(pass) - static_cast<std::uint64_t>(micro_batch));
  return scramble(scramble(pass) + static_cast<std::uint64_t>(layer));
}

thread_local std::optional<std::uint64_t> layer_seed;

// Whether a generator drew numbers since it was seeded.
bool drew(at::Generator& generator) {
  if (!generator.device().is_cpu()) {
    at::Generator fresh = generator.clone();
    fresh.set_current_seed(generator.current_seed());
    return !generator.get_state().equal(fresh.get_state());
  }
  const at::mt19937_data_pod engine = generator.get<at::CPUGeneratorImpl>()->engine().data();
  return engine.left_ != 1 || engine.next_ != 0;
}

}  // namespace

PassSeed next_pass_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  at::Generator copy = generator.clone();
  return static_cast<PassSeed>(copy.get<at::CPUGeneratorImpl>()->random64() & std::numeric_limits<std::int64_t>::max());
}

void draw_pass_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.get<at::CPUGeneratorImpl>()->random64();
}

std::optional<std::uint64_t> current_layer_seed() { return layer_seed; }

RandomScope::RandomScope(PassSeed seed, c10::Device device) : seed_(seed), outer_(layer_seed) {
  std::vector<at::Generator> generators{at::detail::getDefaultCPUGenerator()};
  if (!device.is_cpu()) generators.push_back(at::globalContext().defaultGenerator(device));
  for (auto& generator : generators) {
    const std::lock_guard lock(generator.mutex());
    generators_.emplace_back(generator, generator.get_state());
  }
}

RandomScope::~RandomScope() {
  layer_seed = outer_;
  for (auto& [generator, before] : generators_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(before);
  }
}

void RandomScope::note_use() {
  if (used_ || !begun_) return;
  for (auto& [generator, before] : generators_) {
    const std::lock_guard lock(generator.mutex());
    used_ = used_ || drew(generator);
  }
}

bool RandomScope::used() {
  note_use();
  return used_;
}

void RandomScope::begin(std::int64_t layer) {
  note_use();
  begun_ = true;
  layer_seed = seed_for(seed_, 0, layer);
  for (auto& [generator, before] : generators_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed_for(seed_, micro_batch_, layer));
  }
}

}  // namespace weft::layer_parallel
