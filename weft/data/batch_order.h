// Assigns images to the batches of an epoch such that a rank needs only a fixed part of the images.
//
// A batch has `size` positions, called lanes. The seed assigns every image to one lane permanently. Each epoch shuffles
// every lane separately, and batch k consists of the k-th image of every lane. A rank that owns some of the lanes
// therefore needs the same images in every epoch, and the batches do not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/partition/range.h"

namespace weft::data {

struct OrderOptions {
  std::int64_t size = 100;  // images per batch
  std::uint64_t seed = 0;
  bool shuffle = true;     // if false, batch k contains the images k * size to (k + 1) * size - 1
  bool drop_last = false;  // drop the last batch if it is smaller than the others

  friend bool operator==(const OrderOptions&, const OrderOptions&) = default;
};

class BatchOrder {
 public:
  // Throws std::invalid_argument if `count` is negative or the batch size is below 1.
  BatchOrder(std::int64_t count, const OrderOptions& options);

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] const OrderOptions& options() const { return options_; }
  // Returns the number of batches per epoch.
  [[nodiscard]] std::int64_t batches() const;
  // Returns the size of a batch: options().size, or less for the last one.
  [[nodiscard]] std::int64_t batch_size(std::int64_t batch) const;
  // Returns the lanes of part `index` of `parts`. Throws std::invalid_argument if `index` is out of range.
  [[nodiscard]] partition::Range lanes(std::int64_t parts, std::int64_t index) const;

  // Returns the indices of the images in the given lanes, in ascending order. Throws std::invalid_argument for lanes
  // outside [0, size).
  [[nodiscard]] std::vector<std::int64_t> owned(const partition::Range& lanes) const;
  // Returns the indices of the images in the given lanes for each batch of an epoch, ordered by lane. The concatenation
  // over all parts is the batch. Throws std::invalid_argument for a negative epoch or lanes outside [0, size).
  [[nodiscard]] std::vector<std::vector<std::int64_t>> epoch(std::int64_t epoch, const partition::Range& lanes) const;

 private:
  void check(const partition::Range& lanes) const;
  [[nodiscard]] std::vector<std::int64_t> lane(std::int64_t index) const;

  std::int64_t count_;
  OrderOptions options_;
  std::vector<std::int64_t> permutation_;  // lane i contains the elements i, i + size, i + 2 * size, ...
};

// Returns the indices, ascending, of a random sample of `percent` of `count` images, at least one unless the set is
// empty. Values below 1 are fractions, as in neon's files: 0.1 and 10 mean the same. Throws std::invalid_argument
// unless 0 < percent <= 100.
[[nodiscard]] std::vector<std::int64_t> sample(std::int64_t count, double percent, std::uint64_t seed);

// Throws std::invalid_argument "weft: <name> must be at least <least>, got <value>".
void require_at_least(const char* name, std::int64_t least, std::int64_t value);

}  // namespace weft::data
