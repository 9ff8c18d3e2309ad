#include "weft/spatial/exchange/transfer.h"

#include <algorithm>

#include "weft/spatial/exchange/cells.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Box;
using partition::Piece;

void fill_outside(Tensor& padded, const HaloPlan& plan, double fill) {
  const Box& needed = plan.needed();
  for (std::size_t i = 0; i < plan.dims(); ++i) {
    const std::int64_t dim = padded.dim() - static_cast<std::int64_t>(plan.dims() - i);
    const auto covered = plan.covered().ranges[i];
    const std::int64_t before = std::min(covered.begin - needed.ranges[i].begin, padded.size(dim));
    const std::int64_t behind = padded.size(dim) - before - covered.size();
    if (before > 0) padded.narrow(dim, 0, before).fill_(fill);
    if (behind > 0) padded.narrow(dim, padded.size(dim) - behind, behind).fill_(fill);
  }
}

// Returns the first unreflected piece of the rank's own that fills the whole tile. A circular border may have two.
const Piece* covering_piece(const HaloPlan& plan) {
  for (const Piece& piece : plan.list().own) {
    if (piece.plain() && piece.source == plan.owned()) return &piece;
  }
  return nullptr;
}

// The plan keeps the buffers of a halo. Those of a gather or a repartition are too large to keep.
bool is_worth_keeping(std::int64_t bytes, std::int64_t tile_bytes) {
  constexpr std::int64_t kAlways = std::int64_t{1} << 20;
  return bytes <= std::max(kAlways, tile_bytes / 4);
}

}  // namespace

Transfer::Transfer(const Tensor& like, const HaloPlan& plan, Cargo cargo, mpi::Direction direction, int tag)
    : cargo_(cargo),
      direction_(direction),
      tag_(tag),
      tile_bytes_(like.element_size() * c10::multiply_integers(plan.sizes(like, plan.owned()))),
      buffers_(plan.buffers().take(cargo, direction, like, plan.comm()->channel(direction), tag)) {
  if (buffers_ != nullptr) return;
  const auto& list = plan.list();
  buffers_ = cargo == Cargo::kCells ? std::make_unique<ExchangeBuffers>(list.outgoing, list.incoming, like)
                                    : std::make_unique<ExchangeBuffers>(list.incoming, list.outgoing, like);
}

void Transfer::send(const HaloPlan& plan, const ContentsOf& contents) {
  for (const Message& message : buffers_->outgoing()) {
    for (std::size_t i = 0; i < message.pieces.size(); ++i) message.contents[i].copy_(contents(*message.pieces[i]));
  }
  buffers_->start(plan.comm()->channel(direction_), tag_);
}

void Transfer::receive(const HaloPlan& plan, const Take& take) {
  buffers_->finish(*plan.comm());
  plan.epoch().finish();
  for (const Message& message : buffers_->incoming()) {
    for (std::size_t i = 0; i < message.pieces.size(); ++i) take(*message.pieces[i], message.contents[i]);
  }
  if (is_worth_keeping(buffers_->bytes(), tile_bytes_))
    plan.buffers().put_back(cargo_, direction_, std::move(buffers_));
}

Transfer Transfer::of_cells(const Tensor& x, const HaloPlan& plan, mpi::Direction direction, int tag) {
  Transfer transfer(x, plan, Cargo::kCells, direction, tag);
  transfer.send(plan, [&](const Piece& piece) { return region(x, piece.source, plan.owned()); });
  return transfer;
}

Transfer Transfer::of_gradients(const Tensor& like, const HaloPlan& plan, const ContentsOf& gradient_of,
                                mpi::Direction direction, int tag) {
  Transfer transfer(like, plan, Cargo::kGradients, direction, tag);
  transfer.send(plan, [&](const Piece& piece) { return folded(gradient_of(piece), piece); });
  return transfer;
}

void Transfer::finish_cells(const HaloPlan& plan, const Take& place) {
  receive(plan, [&](const Piece& piece, const Tensor& cells) { place(piece, unfolded(cells, piece)); });
}

void Transfer::finish_gradients(const Tensor& tile, const HaloPlan& plan) {
  receive(plan, [&](const Piece& piece, const Tensor& gradient) {
    region(tile, piece.source, plan.owned()).add_(gradient.to(tile.device()));
  });
}

Tensor with_own_cells(const Tensor& x, const HaloPlan& plan, double fill) {
  Tensor padded = fresh(plan.sizes(x, plan.needed()), x);
  fill_outside(padded, plan, fill);
  for (const Piece& piece : plan.list().own) {
    region(padded, piece.target, plan.needed()).copy_(unfolded(region(x, piece.source, plan.owned()), piece));
  }
  return padded;
}

Tensor with_own_gradients(const Tensor& g, const HaloPlan& plan) {
  const Piece* const covering = covering_piece(plan);
  Tensor tile = fresh(plan.sizes(g, plan.owned()), g);
  if (covering != nullptr) {
    tile.copy_(region(g, covering->target, plan.needed()));
  } else {
    tile.zero_();
  }
  for (const Piece& piece : plan.list().own) {
    if (&piece == covering) continue;
    region(tile, piece.source, plan.owned()).add_(folded(region(g, piece.target, plan.needed()), piece));
  }
  return tile;
}

}  // namespace weft::spatial
