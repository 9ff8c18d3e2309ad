#include "weft/partition/exchange_list.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace weft::partition {
namespace {

using RunsByDim = std::vector<std::vector<Run>>;

RunsByDim runs_of(const Geometry& geometry, const Box& needed) {
  RunsByDim result;
  for (std::size_t i = 0; i < needed.dims(); ++i) {
    result.push_back(runs(needed.ranges[i], geometry.shape[i], geometry.borders[i]));
  }
  return result;
}

// The piece of `owned` that the chosen runs (one per dimension) read; its target is empty if they read nothing.
Piece piece_of(const std::vector<const Run*>& chosen, const Box& owned) {
  Piece piece;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Run part = chosen[i]->within(owned.ranges[i]);
    piece.source.ranges.push_back(part.sources());
    piece.target.ranges.push_back(part.target);
    piece.steps.push_back(part.step);
  }
  return piece;
}

// Calls visit(chosen) for every combination of one run per dimension; the last dimension varies fastest.
template <class Visit>
void for_each_choice(const RunsByDim& all, std::vector<const Run*>& chosen, Visit&& visit) {
  if (chosen.size() == all.size()) {
    visit(chosen);
    return;
  }
  for (const Run& run : all[chosen.size()]) {
    chosen.push_back(&run);
    for_each_choice(all, chosen, visit);
    chosen.pop_back();
  }
}

void append_pieces(const RunsByDim& needed, const Box& owned, std::int64_t peer, std::vector<Piece>& pieces) {
  if (owned.empty()) return;
  std::vector<const Run*> chosen;
  for_each_choice(needed, chosen, [&](const std::vector<const Run*>& choice) {
    Piece piece = piece_of(choice, owned);
    if (piece.target.empty()) return;
    piece.peer = peer;
    pieces.push_back(std::move(piece));
  });
}

std::int64_t cells(const std::vector<Piece>& pieces) {
  std::int64_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.source.volume();
  return sum;
}

}  // namespace

bool Piece::plain() const {
  return std::all_of(steps.begin(), steps.end(), [](std::int8_t step) { return step == 1; });
}

std::int64_t ExchangeList::cells_sent() const { return cells(outgoing); }
std::int64_t ExchangeList::cells_received() const { return cells(incoming); }

void Geometry::validate() const {
  if (owned.size() != needed.size() || owned.empty()) {
    throw std::invalid_argument("Geometry: expected an owned and a needed box for each rank, got " +
                                std::to_string(owned.size()) + " and " + std::to_string(needed.size()));
  }
  if (borders.size() != shape.size()) {
    throw std::invalid_argument("Geometry: expected a border for each of " + std::to_string(shape.size()) +
                                " dimensions, got " + std::to_string(borders.size()));
  }
  for (const auto* boxes : {&owned, &needed}) {
    for (const Box& box : *boxes) {
      if (box.dims() == shape.size()) continue;
      throw std::invalid_argument("Geometry: expected boxes of " + std::to_string(shape.size()) + " dimensions, got " +
                                  box.describe());
    }
  }
}

ExchangeList exchange_list(const Geometry& geometry, std::int64_t rank) {
  geometry.validate();
  const auto me = static_cast<std::size_t>(rank);
  ExchangeList list;
  const RunsByDim mine = runs_of(geometry, geometry.needed.at(me));
  for (std::size_t peer = 0; peer < geometry.owned.size(); ++peer) {
    const auto number = static_cast<std::int64_t>(peer);
    append_pieces(mine, geometry.owned[peer], number, peer == me ? list.own : list.incoming);
    if (peer == me) continue;
    append_pieces(runs_of(geometry, geometry.needed[peer]), geometry.owned[me], number, list.outgoing);
  }
  return list;
}

bool communicates(const Geometry& geometry) {
  std::vector<Piece> pieces;
  for (std::size_t rank = 0; rank < geometry.needed.size() && pieces.empty(); ++rank) {
    const RunsByDim needed = runs_of(geometry, geometry.needed[rank]);
    for (std::size_t peer = 0; peer < geometry.owned.size(); ++peer) {
      if (peer != rank) append_pieces(needed, geometry.owned[peer], static_cast<std::int64_t>(peer), pieces);
    }
  }
  return !pieces.empty();
}

bool only_crops(const Geometry& geometry) {
  for (std::size_t rank = 0; rank < geometry.owned.size(); ++rank) {
    if (!geometry.owned[rank].contains(geometry.needed[rank])) return false;
  }
  return true;
}

}  // namespace weft::partition
