// Exchange lists, compared with the owner of every cell.
#include "weft/partition/exchange_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/partition/invalid_argument.h"
#include "weft/partition/tiling.h"
#include "weft/partition/window.h"

namespace weft::partition {
namespace {

using testing::HasSubstr;
using Sizes = std::vector<std::int64_t>;
using Cell = std::vector<std::int64_t>;

template <class Visit>
void for_each_cell(const Box& box, Visit visit, Cell cell = {}) {
  if (cell.size() == box.dims()) {
    visit(cell);
    return;
  }
  const Range range = box.ranges[cell.size()];
  cell.push_back(0);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    cell.back() = i;
    for_each_cell(box, visit, cell);
  }
}

// The cell of the field that supplies a padding cell, or an empty cell for zero padding.
Cell source_of(Cell cell, const Geometry& geometry) {
  for (std::size_t i = 0; i < cell.size(); ++i) {
    const std::int64_t size = geometry.shape[i];
    if (cell[i] >= 0 && cell[i] < size) continue;
    if (geometry.borders[i] == Border::kZeros) return {};
    if (geometry.borders[i] == Border::kReflect) cell[i] = cell[i] < 0 ? -cell[i] : 2 * (size - 1) - cell[i];
    if (geometry.borders[i] == Border::kReplicate) cell[i] = cell[i] < 0 ? 0 : size - 1;
    if (geometry.borders[i] == Border::kCircular) cell[i] = (cell[i] + size) % size;
  }
  return cell;
}

// Adds the source of every target cell of a piece to `got`. Fails if two pieces write the same cell.
void deliver(const Piece& piece, std::map<Cell, Cell>& got) {
  for_each_cell(piece.target, [&](const Cell& target) {
    Cell source(target.size());
    for (std::size_t i = 0; i < target.size(); ++i) {
      const std::int64_t j = target[i] - piece.target.ranges[i].begin;
      const Range range = piece.source.ranges[i];
      source[i] = piece.steps[i] == 1 ? range.begin + j : piece.steps[i] == -1 ? range.end - 1 - j : range.begin;
      ASSERT_TRUE(range.contains(source[i]));
    }
    ASSERT_TRUE(got.emplace(target, source).second) << "delivered twice";
  });
}

void expect_correct(const Geometry& geometry) {
  const auto ranks = static_cast<std::int64_t>(geometry.owned.size());
  std::vector<ExchangeList> lists;
  for (std::int64_t rank = 0; rank < ranks; ++rank) lists.push_back(exchange_list(geometry, rank));
  bool any = false;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const auto me = static_cast<std::size_t>(rank);
    std::map<Cell, Cell> got;
    std::map<std::int64_t, std::vector<Piece>> from;
    for (const Piece& piece : lists[me].own) deliver(piece, got);
    for (const Piece& piece : lists[me].incoming) {
      ASSERT_TRUE(geometry.owned[static_cast<std::size_t>(piece.peer)].contains(piece.source));
      deliver(piece, got);
      from[piece.peer].push_back(piece);
      any = true;
    }
    for_each_cell(geometry.needed[me], [&](const Cell& cell) {
      const Cell source = source_of(cell, geometry);
      const auto found = got.find(cell);
      ASSERT_EQ(found != got.end(), !source.empty());
      if (found == got.end()) return;
      ASSERT_EQ(found->second, source);
    });
    // The pieces that a peer sends match the expected ones, in the same order.
    for (std::int64_t peer = 0; peer < ranks; ++peer) {
      std::vector<Piece> sent;
      for (Piece piece : lists[static_cast<std::size_t>(peer)].outgoing) {
        if (piece.peer != rank) continue;
        piece.peer = peer;
        sent.push_back(piece);
      }
      ASSERT_EQ(sent, from[peer]);
    }
  }
  ASSERT_EQ(communicates(geometry), any);
}

class RandomGeometry {
 public:
  explicit RandomGeometry(unsigned seed) : random_(seed) {}

  Tiling tiling(const Grid& grid) {
    std::vector<Cuts> cuts;
    for (const std::int64_t extent : grid.extents()) {
      Sizes sizes;
      for (std::int64_t i = 0; i < extent; ++i) sizes.push_back(between(0, 4));
      sizes[static_cast<std::size_t>(between(0, extent - 1))] += 2;
      cuts.push_back(Cuts::of_sizes(sizes));
    }
    return {grid, cuts};
  }

  Geometry windows(const Grid& grid) {
    const Tiling in = tiling(grid);
    Geometry geometry{in.tiles(), std::vector<Box>(in.tiles().size()), in.shape(), {}};
    for (std::size_t i = 0; i < grid.dims(); ++i) {
      const auto border = static_cast<Border>(between(0, 3));
      const std::int64_t padding = std::min<std::int64_t>(between(0, 3), geometry.shape[i] - 1);
      const Window window{between(1, 7), between(1, 4), padding, padding, between(1, 3)};
      const Cuts outputs = cut_outputs(in.cuts()[i], window.outputs(geometry.shape[i]));
      for (std::int64_t rank = 0; rank < grid.size(); ++rank) {
        const Range mine = outputs.part(grid.coordinates(rank)[i]);
        geometry.needed[static_cast<std::size_t>(rank)].ranges.push_back(window.needed(mine));
      }
      geometry.borders.push_back(border);
    }
    return geometry;
  }

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }

 private:
  std::mt19937 random_;
};

TEST(ExchangeListTest, IsCorrectForRandomWindows) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomGeometry random(seed);
    expect_correct(random.windows(Grid({random.between(1, 6)})));
    expect_correct(random.windows(Grid({random.between(1, 3), random.between(1, 3)})));
    if (seed % 10 == 0) expect_correct(random.windows(Grid({2, random.between(1, 2), 2})));
    if (HasFatalFailure()) return;
  }
}

TEST(ExchangeListTest, IsCorrectForRandomRepartitions) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomGeometry random(seed);
    const Grid grid({random.between(1, 3), random.between(1, 3)});
    const Tiling from = random.tiling(grid);
    const Tiling to = Tiling::balanced(grid, from.shape());
    expect_correct({from.tiles(), to.tiles(), from.shape(), {Border::kZeros, Border::kZeros}});
    if (HasFatalFailure()) return;
  }
}

TEST(ExchangeListTest, HalosExtendBeyondNeighbours) {
  // With one row per tile and a window of five rows, every rank needs rows of four others.
  const Tiling tiling = Tiling::balanced(Grid({6}), {6});
  Geometry geometry{tiling.tiles(), {}, {6}, {Border::kZeros}};
  for (const Box& tile : tiling.tiles()) geometry.needed.push_back({{Window{5, 1, 2, 2}.needed(tile.ranges[0])}});
  const ExchangeList list = exchange_list(geometry, 2);
  EXPECT_EQ(list.cells_received(), 4);
  EXPECT_EQ(list.cells_sent(), 4);
  EXPECT_EQ(exchange_list(geometry, 0).cells_received(), 2);
  EXPECT_TRUE(communicates(geometry));
  EXPECT_FALSE(only_crops(geometry));
}

TEST(ExchangeListTest, CropsDoNotCommunicate) {
  const Tiling tiling = Tiling::balanced(Grid({2}), {8});
  const Geometry geometry{tiling.tiles(), {{{{0, 3}}}, {{{4, 8}}}}, {8}, {Border::kZeros}};
  EXPECT_TRUE(only_crops(geometry));
  EXPECT_FALSE(communicates(geometry));
}

TEST(ExchangeListTest, RejectsInconsistentGeometry) {
  EXPECT_THAT(invalid_argument_text([] { (void)exchange_list({{}, {}, {}, {}}, 0); }),
              HasSubstr("an owned and a needed box for each rank"));
  EXPECT_THAT(invalid_argument_text([] { (void)exchange_list({{Box{}}, {Box{}}, {4}, {}}, 0); }),
              HasSubstr("a border for each of 1 dimensions, got 0"));
  EXPECT_THAT(invalid_argument_text([] { (void)exchange_list({{Box{}}, {Box{}}, {4}, {Border::kZeros}}, 0); }),
              HasSubstr("expected boxes of 1 dimensions, got a point"));
}

}  // namespace
}  // namespace weft::partition
