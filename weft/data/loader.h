// Loads a rank's share of each batch as tensors, prefetching on a thread while the network computes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/data/part.h"
#include "weft/data/prefetch.h"

namespace weft::data {

struct LoaderOptions {
  std::int64_t prefetch = 2;         // number of batches to prefetch; 0 disables the thread
  at::ScalarType type = at::kFloat;  // or kDouble, or kByte for unconverted pixels
};

struct Batch {
  at::Tensor images;        // [own lanes, channels, rows of the tile, columns of the tile], 0 to 1; may have no lanes
  at::Tensor labels;        // int64, [own lanes]
  std::int64_t number = 0;  // index of the batch in its epoch
  std::int64_t whole_size = 0;  // images of the batch over all shards: the denominator of a mean
  std::int64_t first = 0;       // position of this share's first image in the batch
};

// Not thread-safe.
class Loader {
 public:
  // `options` are those that the part was loaded with. Throws std::invalid_argument if they do not match the part.
  Loader(ImagePart part, const PartOptions& options, const LoaderOptions& loading = {});
  ~Loader();

  [[nodiscard]] const ImagePart& part() const { return part_; }
  [[nodiscard]] std::int64_t batches() const { return order_.batches(); }
  // Starts an epoch at `first_batch`, abandoning the current epoch if there is one.
  void start(std::int64_t epoch, std::int64_t first_batch = 0);
  // Returns the next batch, or nullopt at the end of the epoch and before the first start().
  [[nodiscard]] std::optional<Batch> next();

 private:
  [[nodiscard]] Batch make(std::int64_t number, const std::vector<std::int64_t>& images) const;

  ImagePart part_;
  BatchOrder order_;
  partition::Range lanes_;
  LoaderOptions loading_;
  std::unique_ptr<Prefetcher<Batch>> prefetcher_;
};

}  // namespace weft::data
