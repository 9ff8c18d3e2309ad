// The part of a set that one rank keeps in memory: its lanes of every batch and its tile of every image.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "weft/data/batch_order.h"
#include "weft/data/image_source.h"
#include "weft/data/images.h"
#include "weft/data/split.h"
#include "weft/partition/box.h"

namespace weft::data {

struct PartOptions {
  Split split{};
  std::int64_t rank = 0;
  OrderOptions order{};     // determines the images of a shard
  double sample_pct = 100;  // see sample(); applied to the whole set before the split
  std::uint64_t sample_seed = 0;

  // One line with all options that determine the content of a part, used to validate caches.
  [[nodiscard]] std::string describe() const;
};

struct ImagePart {
  LabelledImages kept;  // uint8, [own images, channels, rows of the tile, columns of the tile]
  at::Tensor numbers;   // int64, ascending: indices of the kept images in `whole`
  ImageSet whole;       // the set after sampling, before the split
  partition::Box tile;  // rows and columns

  // The memory used by the tensors.
  [[nodiscard]] std::int64_t bytes() const;
};

// Reads the whole source and keeps the rank's part; uses memory for one additional image. Throws DataError for invalid
// data, std::invalid_argument for invalid options.
[[nodiscard]] ImagePart read_part(ImageSource& source, const PartOptions& options);

// Reads all images without splitting them.
[[nodiscard]] LabelledImages read_all(ImageSource& source);

}  // namespace weft::data
