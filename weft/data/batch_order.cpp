#include "weft/data/batch_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "weft/data/random_stream.h"

namespace weft::data {
namespace {

// Purposes of random streams; streams with the same seed and different purposes are independent.
constexpr std::int64_t kAssigning = 1;
constexpr std::int64_t kShuffling = 2;
constexpr std::int64_t kSampling = 3;

std::vector<std::int64_t> counting(std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
  return numbers;
}

}  // namespace

void require_at_least(const char* name, std::int64_t least, std::int64_t value) {
  if (value >= least) return;
  throw std::invalid_argument(std::string("weft: ") + name + " must be at least " + std::to_string(least) + ", got " +
                              std::to_string(value));
}

BatchOrder::BatchOrder(std::int64_t count, const OrderOptions& options) : count_(count), options_(options) {
  require_at_least("count", 0, count);
  require_at_least("batch size", 1, options.size);
  permutation_ = counting(count);
  if (options.shuffle) RandomStream(options.seed, {kAssigning}).shuffle(permutation_);
}

std::int64_t BatchOrder::batches() const {
  return options_.drop_last ? count_ / options_.size : (count_ + options_.size - 1) / options_.size;
}

std::int64_t BatchOrder::batch_size(std::int64_t batch) const {
  return std::clamp(count_ - batch * options_.size, std::int64_t{0}, options_.size);
}

partition::Range BatchOrder::lanes(std::int64_t parts, std::int64_t index) const {
  return partition::balanced(options_.size, parts, index);
}

void BatchOrder::check(const partition::Range& lanes) const {
  if (lanes.begin >= 0 && lanes.end <= options_.size) return;
  throw std::invalid_argument("weft: lanes must be in [0, " + std::to_string(options_.size) + "), got [" +
                              std::to_string(lanes.begin) + ", " + std::to_string(lanes.end) + ")");
}

std::vector<std::int64_t> BatchOrder::lane(std::int64_t index) const {
  std::vector<std::int64_t> images;
  for (std::int64_t i = index; i < count_; i += options_.size) images.push_back(permutation_[i]);
  return images;
}

std::vector<std::int64_t> BatchOrder::owned(const partition::Range& lanes) const {
  check(lanes);
  std::vector<std::int64_t> images;
  // Lanes from count_ on are empty.
  for (std::int64_t index = lanes.begin; index < std::min(lanes.end, count_); ++index) {
    const auto more = lane(index);
    images.insert(images.end(), more.begin(), more.end());
  }
  std::sort(images.begin(), images.end());
  return images;
}

std::vector<std::vector<std::int64_t>> BatchOrder::epoch(std::int64_t epoch, const partition::Range& lanes) const {
  require_at_least("epoch", 0, epoch);
  check(lanes);
  std::vector<std::vector<std::int64_t>> batches(static_cast<std::size_t>(this->batches()));
  for (std::int64_t index = lanes.begin; index < std::min(lanes.end, count_); ++index) {
    auto images = lane(index);
    if (options_.shuffle) RandomStream(options_.seed, {kShuffling, epoch, index}).shuffle(images);
    for (std::size_t i = 0; i < std::min(images.size(), batches.size()); ++i) batches[i].push_back(images[i]);
  }
  return batches;
}

std::vector<std::int64_t> sample(std::int64_t count, double percent, std::uint64_t seed) {
  require_at_least("count", 0, count);
  if (!(percent > 0 && percent <= 100)) {
    throw std::invalid_argument(
        "weft: sample_pct must be a percentage above 0 and up to 100, or a fraction below 1, got " +
        std::to_string(percent));
  }
  const double fraction = percent < 1 ? percent : percent / 100;
  auto kept = std::llround(std::floor(static_cast<double>(count) * fraction + 1e-9));
  kept = std::clamp<long long>(kept, std::min<std::int64_t>(count, 1), count);
  auto numbers = counting(count);
  if (kept < count) RandomStream(seed, {kSampling}).shuffle(numbers);
  numbers.resize(static_cast<std::size_t>(kept));
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace weft::data
