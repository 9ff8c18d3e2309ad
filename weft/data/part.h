// The part of a set of images that one rank keeps in memory: its lanes of every batch, its tile of every image.
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
  OrderOptions order{};     // decides which images a shard owns
  double sample_pct = 100;  // see sample(); of the whole set, before anything is split
  std::uint64_t sample_seed = 0;

  // All that decides what a part holds, in one line: parts with the same line and origin are the same.
  [[nodiscard]] std::string describe() const;
};

struct ImagePart {
  LabelledImages kept;  // uint8, [own images, channels, rows of the tile, columns of the tile]
  at::Tensor numbers;   // int64, ascending: which images of `whole` they are
  ImageSet whole;       // after sampling, before any split
  partition::Box tile;  // rows and columns

  // What the tensors take.
  [[nodiscard]] std::int64_t bytes() const;
};

// Reads the source to its end and keeps the rank's part; beyond that it needs memory for one image. Throws DataError
// for data that is not what it should be, std::invalid_argument for options that make no sense.
[[nodiscard]] ImagePart read_part(ImageSource& source, const PartOptions& options);

// Every image, whole.
[[nodiscard]] LabelledImages read_all(ImageSource& source);

}  // namespace weft::data
