// Computes the messages that give every rank the box that it needs from the ranks that own its cells.
//
// Owners need not be neighbours; a rank may need nothing, own nothing, or need less than it owns. Repartitioning, halo
// exchange, gather and scatter differ only in the boxes.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/partition/border.h"
#include "weft/partition/box.h"

namespace weft::partition {

// Cells that one message carries. The owner sends `source` in ascending order; `target` is their position in the needed
// box. A dimension with step -1 is reversed on arrival; with step 0, a single cell fills the target.
struct Piece {
  std::int64_t peer = 0;
  Box source;
  Box target;
  std::vector<std::int8_t> steps;

  // Whether the step is 1 in every dimension.
  [[nodiscard]] bool plain() const;

  friend bool operator==(const Piece&, const Piece&) = default;
};

// The pieces of one rank. Pieces between the same two ranks have the same order on both.
struct ExchangeList {
  std::vector<Piece> outgoing;  // pieces sent to other ranks
  std::vector<Piece> incoming;  // pieces received from other ranks
  std::vector<Piece> own;       // pieces copied locally

  // Cells exchanged with other ranks.
  [[nodiscard]] std::int64_t cells_sent() const;
  [[nodiscard]] std::int64_t cells_received() const;
};

struct Geometry {
  std::vector<Box> owned;   // by rank; boxes of different ranks do not overlap
  std::vector<Box> needed;  // by rank; may reach beyond the field
  std::vector<std::int64_t> shape;
  std::vector<Border> borders;  // by dimension

  // Throws std::invalid_argument if counts or dimensions are inconsistent.
  void validate() const;
};

// Throws std::invalid_argument like Geometry::validate().
[[nodiscard]] ExchangeList exchange_list(const Geometry& geometry, std::int64_t rank);

// Returns true if any rank needs cells that it does not own.
[[nodiscard]] bool communicates(const Geometry& geometry);
// Whether every rank needs only cells that it owns.
[[nodiscard]] bool only_crops(const Geometry& geometry);

}  // namespace weft::partition
