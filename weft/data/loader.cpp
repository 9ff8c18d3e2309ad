#include "weft/data/loader.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "weft/collective/pool.h"
#include "weft/trace/recording.h"

namespace weft::data {
namespace {

// Uses plain loops, because torch operations would start another OpenMP thread team for the prefetching thread.
template <typename Number>
void convert(const std::uint8_t* from, std::int64_t count, Number* into) {
  for (std::int64_t i = 0; i < count; ++i) into[i] = static_cast<Number>(from[i]) / Number{255};
}

void copy_pixels(const std::uint8_t* from, std::int64_t count, std::int64_t row, const at::Tensor& into) {
  if (into.scalar_type() == at::kFloat) {
    convert(from, count, into.mutable_data_ptr<float>() + row * count);
  } else if (into.scalar_type() == at::kDouble) {
    convert(from, count, into.mutable_data_ptr<double>() + row * count);
  } else {
    std::memcpy(into.mutable_data_ptr<std::uint8_t>() + row * count, from, static_cast<std::size_t>(count));
  }
}

// The row of the part that contains image `image` of the set.
std::int64_t row_of(std::int64_t image, const at::Tensor& numbers) {
  const auto* begin = numbers.const_data_ptr<std::int64_t>();
  return std::lower_bound(begin, begin + numbers.numel(), image) - begin;
}

void check(const ImagePart& part, const BatchOrder& order, const partition::Range& lanes, at::ScalarType type) {
  if (type != at::kFloat && type != at::kDouble && type != at::kByte) {
    throw std::invalid_argument(std::string("weft: expected Float, Double or Byte as the data type of batches, got ") +
                                c10::toString(type));
  }
  const auto owned = order.owned(lanes);
  const auto* numbers = part.numbers.const_data_ptr<std::int64_t>();
  if (!std::equal(owned.begin(), owned.end(), numbers, numbers + part.numbers.numel())) {
    throw std::invalid_argument("weft: the part does not match the loader's options: it contains " +
                                std::to_string(part.numbers.numel()) + " images, the options select " +
                                std::to_string(owned.size()) +
                                (std::ssize(owned) == part.numbers.numel() ? " others" : ""));
  }
}

}  // namespace

Loader::Loader(ImagePart part, const PartOptions& options, const LoaderOptions& loading)
    : part_(std::move(part)),
      order_(part_.whole.count, options.order),
      lanes_(order_.lanes(options.split.shards(), options.split.shard(options.rank))),
      loading_(loading) {
  check(part_, order_, lanes_, loading.type);
}

Loader::~Loader() = default;

void Loader::start(std::int64_t epoch, std::int64_t first_batch) {
  prefetcher_.reset();
  auto produce = [this, batches = order_.epoch(epoch, lanes_), number = first_batch, named = false]() mutable {
    if (!named && trace::recording() && loading_.prefetch > 0) trace::name_thread("data");
    named = true;
    if (number >= std::ssize(batches)) return std::optional<Batch>();
    const std::int64_t current = number++;
    return std::optional<Batch>(make(current, batches[static_cast<std::size_t>(current)]));
  };
  prefetcher_ = std::make_unique<Prefetcher<Batch>>(std::move(produce), static_cast<std::size_t>(loading_.prefetch));
}

std::optional<Batch> Loader::next() {
  const trace::Span waiting("data/wait");
  return prefetcher_ ? prefetcher_->next() : std::nullopt;
}

Batch Loader::make(std::int64_t number, const std::vector<std::int64_t>& images) const {
  const trace::Span making("data/make batch", number);
  const auto count = std::ssize(images);
  const at::Tensor& kept = part_.kept.images;
  const std::int64_t pixels = kept.size(1) * kept.size(2) * kept.size(3);
  Batch batch{collective::pooled_empty({count, kept.size(1), kept.size(2), kept.size(3)}, loading_.type),
              at::empty({count}, at::kLong), number, order_.batch_size(number),
              std::min(lanes_.begin, order_.batch_size(number))};
  auto* labels = batch.labels.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = row_of(images[i], part_.numbers);
    copy_pixels(kept.const_data_ptr<std::uint8_t>() + row * pixels, pixels, i, batch.images);
    labels[i] = part_.kept.labels.const_data_ptr<std::int64_t>()[row];
  }
  return batch;
}

}  // namespace weft::data
