// Who sends which cells to whom, so that every rank gets the box it needs from the ranks that own its cells.
//
// Owners may be anybody, not only neighbours; a rank may need nothing, own nothing, or need less than it owns. A change
// of partition, a halo, a gather and a scatter differ only in the boxes.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/partition/border.h"
#include "weft/partition/box.h"

namespace weft::partition {

// Cells that travel together. The owner sends `source` in ascending order; `target` is where they belong in the needed
// box. In a dimension of step -1 they arrive reversed, in one of step 0 a single cell fills the target.
struct Piece {
  std::int64_t peer = 0;
  Box source;
  Box target;
  std::vector<std::int8_t> steps;

  [[nodiscard]] bool plain() const;  // step 1 everywhere

  friend bool operator==(const Piece&, const Piece&) = default;
};

// One rank's part. Pieces between the same two ranks stand in the same order on both.
struct ExchangeList {
  std::vector<Piece> outgoing;  // to other ranks
  std::vector<Piece> incoming;  // from other ranks
  std::vector<Piece> own;       // from the rank itself

  // Cells sent to others, and received from them.
  [[nodiscard]] std::int64_t cells_sent() const;
  [[nodiscard]] std::int64_t cells_received() const;
};

struct Geometry {
  std::vector<Box> owned;   // by rank; boxes of different ranks do not overlap
  std::vector<Box> needed;  // by rank; may reach beyond the field
  std::vector<std::int64_t> shape;
  std::vector<Border> borders;  // by dimension

  // Throws std::invalid_argument where counts or dimensions do not fit.
  void validate() const;
};

[[nodiscard]] ExchangeList exchange_list(const Geometry& geometry, std::int64_t rank);

// Whether any cell goes from one rank to another, and whether every rank needs only cells that it owns.
[[nodiscard]] bool communicates(const Geometry& geometry);
[[nodiscard]] bool only_crops(const Geometry& geometry);

}  // namespace weft::partition
