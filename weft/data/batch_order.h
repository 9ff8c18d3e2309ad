// Which images make up which batch of an epoch, so that a rank that takes part of every batch needs to keep only part
// of the images, and the batches are the same on any number of ranks.
//
// A batch has `size` places, its lanes. Every image belongs to one lane for good, dealt out by the seed; an epoch
// shuffles each lane by itself, and its batch k takes the k-th image of every lane. A rank that owns some of the lanes
// then owns the same images in every epoch.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/partition/range.h"

namespace weft::data {

struct OrderOptions {
  std::int64_t size = 100;  // of a batch
  std::uint64_t seed = 0;
  bool shuffle = true;     // otherwise batch k holds the images from k * size on, as they come
  bool drop_last = false;  // leave out the last batch where it is smaller than the others

  friend bool operator==(const OrderOptions&, const OrderOptions&) = default;
};

class BatchOrder {
 public:
  // Throws std::invalid_argument for a negative count or batches below 1.
  BatchOrder(std::int64_t count, const OrderOptions& options);

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] const OrderOptions& options() const { return options_; }
  [[nodiscard]] std::int64_t batches() const;
  // Of batch k: options().size, or less at the end.
  [[nodiscard]] std::int64_t batch_size(std::int64_t batch) const;
  // The lanes of part `index` of `parts`.
  [[nodiscard]] partition::Range lanes(std::int64_t parts, std::int64_t index) const;

  // The images of these lanes, ascending.
  [[nodiscard]] std::vector<std::int64_t> owned(const partition::Range& lanes) const;
  // The images of these lanes in each batch of an epoch, in the order of the lanes. Those of all lanes, one part after
  // the other, are the batch.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> epoch(std::int64_t epoch, const partition::Range& lanes) const;

 private:
  [[nodiscard]] std::vector<std::int64_t> lane(std::int64_t index) const;

  std::int64_t count_;
  OrderOptions options_;
  std::vector<std::int64_t> dealt_;  // lane i has every size-th image of this from i on
};

// The numbers, ascending, of the images that a sample keeps: as many as `percent` of `count`, but of a set that has any
// at least one, chosen by the seed. Below 1 it means the fraction itself, as in neon's files: 0.1 and 10 are the same.
// Throws std::invalid_argument for anything but a number above 0 and up to 100.
[[nodiscard]] std::vector<std::int64_t> sample(std::int64_t count, double percent, std::uint64_t seed);

}  // namespace weft::data
