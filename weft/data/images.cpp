#include "weft/data/images.h"

#include "weft/partition/range.h"

namespace weft::data {

LabelledImages LabelledImages::select(const at::Tensor& numbers) const {
  return {images.index_select(0, numbers), labels.index_select(0, numbers)};
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
