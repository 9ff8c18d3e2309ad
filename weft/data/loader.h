// A rank's share of each batch of an epoch, as floating-point tensors, made ahead on a thread while the network
// computes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/data/part.h"
#include "weft/data/prefetch.h"

namespace weft::data {

struct LoaderOptions {
  std::int64_t prefetch = 2;         // batches made ahead; 0: none, and no thread
  at::ScalarType type = at::kFloat;  // or kDouble, or kByte for the pixels as they are
};

struct Batch {
  at::Tensor images;  // [own lanes, channels, rows of the tile, columns of the tile], from 0 to 1; may hold no image
  at::Tensor labels;  // int64, [own lanes]
  std::int64_t number = 0;      // of the batch in its epoch
  std::int64_t whole_size = 0;  // images of the batch over all shards: what a mean is taken over
  std::int64_t first = 0;       // which of them is this share's first
};

// Not for several threads at once.
class Loader {
 public:
  // `options` as the part was loaded with. Throws std::invalid_argument where part and options do not fit each other.
  Loader(ImagePart part, const PartOptions& options, const LoaderOptions& loading = {});
  ~Loader();

  [[nodiscard]] const ImagePart& part() const { return part_; }
  [[nodiscard]] std::int64_t batches() const { return order_.batches(); }
  // Begins an epoch, also in the middle of another one; `first_batch` of it is the first to come, for a run that goes
  // on.
  void start(std::int64_t epoch, std::int64_t first_batch = 0);
  // Nothing at the end of the epoch, or before the first start().
  [[nodiscard]] std::optional<Batch> next();

 private:
  [[nodiscard]] Batch make(std::int64_t number, const std::vector<std::int64_t>& images) const;

  ImagePart part_;
  BatchOrder order_;
  partition::Range lanes_;
  LoaderOptions loading_;
  std::unique_ptr<Prefetcher<Batch>> ahead_;
};

}  // namespace weft::data
