#include "weft/data/part.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <sstream>
#include <utility>
#include <vector>

#include "weft/trace/span.h"

namespace weft::data {
namespace {

// The images that this rank keeps.
struct Selection {
  std::int64_t count = 0;             // size of the sample
  std::vector<std::int64_t> numbers;  // indices in the sample
  std::vector<std::int64_t> places;   // indices in the whole set
};

Selection select(std::int64_t count, const PartOptions& options) {
  const auto sampled = sample(count, options.sample_pct, options.sample_seed);
  const BatchOrder order(std::ssize(sampled), options.order);
  Selection selection{
      std::ssize(sampled), order.owned(order.lanes(options.split.shards(), options.split.shard(options.rank))), {}};
  for (const std::int64_t number : selection.numbers) selection.places.push_back(sampled[number]);
  return selection;
}

// Copies the tile of an image, with all channels.
void crop(const std::uint8_t* image, const ImageSet& set, const partition::Box& tile, std::uint8_t* into) {
  const auto& rows = tile.ranges[0];
  const auto& columns = tile.ranges[1];
  for (std::int64_t channel = 0; channel < set.channels; ++channel) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      std::memcpy(into, image + (channel * set.height + row) * set.width + columns.begin, columns.size());
      into += columns.size();
    }
  }
}

at::Tensor tensor_of(const std::vector<std::int64_t>& numbers) {
  at::Tensor result = at::empty({std::ssize(numbers)}, at::kLong);
  std::memcpy(result.mutable_data_ptr(), numbers.data(), numbers.size() * sizeof(std::int64_t));
  return result;
}

ImagePart empty_part(const ImageSet& set, const Selection& selection, const partition::Box& tile) {
  const auto count = std::ssize(selection.numbers);
  ImagePart part;
  part.kept.images = at::empty({count, set.channels, tile.ranges[0].size(), tile.ranges[1].size()}, at::kByte);
  part.kept.labels = at::empty({count}, at::kLong);
  part.numbers = tensor_of(selection.numbers);
  part.whole = set;
  part.whole.count = selection.count;
  part.tile = tile;
  return part;
}

}  // namespace

std::string PartOptions::describe() const {
  std::ostringstream text;
  text.precision(17);
  text << "rank " << rank << " of " << split.describe() << ", batches of " << order.size << ", "
       << (order.shuffle ? "shuffled by " + std::to_string(order.seed) : "in order") << ", " << sample_pct
       << " percent sampled by " << sample_seed;
  return text.str();
}

std::int64_t ImagePart::bytes() const {
  return static_cast<std::int64_t>(kept.images.nbytes() + kept.labels.nbytes() + numbers.nbytes());
}

ImagePart read_part(ImageSource& source, const PartOptions& options) {
  const trace::Span reading("data/read");
  const ImageSet& set = source.set();
  const partition::Box tile = options.split.tile(options.rank, set.height, set.width);
  const Selection selection = select(set.count, options);
  ImagePart part = empty_part(set, selection, tile);
  auto* pixels = part.kept.images.mutable_data_ptr<std::uint8_t>();
  auto* labels = part.kept.labels.mutable_data_ptr<std::int64_t>();
  std::vector<std::uint8_t> image(static_cast<std::size_t>(set.pixels()));
  auto next = selection.places.begin();
  for (std::int64_t i = 0; i < set.count; ++i) {  // reads all images, so that every rank detects damage
    const std::int64_t label = source.read(image);
    if (next == selection.places.end() || *next != i) continue;
    ++next;
    *labels++ = label;
    crop(image.data(), set, tile, pixels);
    pixels += set.channels * tile.volume();
  }
  return part;
}

LabelledImages read_all(ImageSource& source) {
  PartOptions everything;
  everything.order.shuffle = false;
  return read_part(source, everything).kept;
}

}  // namespace weft::data
