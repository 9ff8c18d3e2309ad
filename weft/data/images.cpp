#include "weft/data/images.h"

#include <sstream>
#include <utility>

#include "weft/data/file.h"
#include "weft/partition/range.h"

namespace weft::data {
namespace {

std::string described(const at::Tensor& array) {
  std::ostringstream text;
  text << array.scalar_type() << " of shape " << array.sizes();
  return text.str();
}

void require(bool holds, const std::string& name, const std::string& expected, const std::string& got) {
  if (!holds) throw DataError("weft: expected " + name + " to have " + expected + ", got " + got);
}

}  // namespace

LabelledImages LabelledImages::select(const at::Tensor& numbers) const {
  return {images.index_select(0, numbers), labels.index_select(0, numbers)};
}

LabelledImages pair_up(at::Tensor images, const at::Tensor& labels, std::int64_t classes, const std::string& name) {
  require(images.scalar_type() == at::kByte && (images.dim() == 3 || images.dim() == 4), name,
          "images of bytes in 3 or 4 dimensions", described(images));
  require(labels.scalar_type() == at::kByte && labels.dim() == 1, name, "labels of bytes in 1 dimension",
          described(labels));
  require(images.size(0) == labels.size(0), name, "a label for each image",
          std::to_string(images.size(0)) + " images and " + std::to_string(labels.size(0)) + " labels");
  if (labels.numel() > 0) {
    const auto largest = labels.max().item<std::int64_t>();
    require(largest < classes, name, "labels from 0 to " + std::to_string(classes - 1), std::to_string(largest));
  }
  if (images.dim() == 3) images = images.unsqueeze(1);
  return {std::move(images), labels.to(at::kLong)};
}

at::Tensor unit_floats(const at::Tensor& images) { return images.to(at::kFloat).div_(255); }

at::Tensor shard(const at::Tensor& whole, std::int64_t parts, std::int64_t index, std::int64_t dim) {
  const partition::Range range = partition::balanced(whole.size(dim), parts, index);
  return whole.narrow(dim, range.begin, range.size());
}

LabelledImages shard(const LabelledImages& whole, std::int64_t parts, std::int64_t index) {
  return {shard(whole.images, parts, index), shard(whole.labels, parts, index)};
}

}  // namespace weft::data
