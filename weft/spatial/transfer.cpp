#include "weft/spatial/transfer.h"

#include <algorithm>

#include "weft/collective/tensor.h"
#include "weft/mpi/exchange.h"
#include "weft/mpi/waiter.h"
#include "weft/spatial/cells.h"

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

// The first plain piece of the rank's own that fills the whole tile, if any; around a circular border there may be two.
const Piece* covering_piece(const HaloPlan& plan) {
  for (const Piece& piece : plan.list().own) {
    if (piece.plain() && piece.source == plan.owned()) return &piece;
  }
  return nullptr;
}

}  // namespace

std::vector<Transfer::Message> Transfer::messages(const std::vector<Piece>& pieces, const Tensor& like) {
  const std::int64_t leading = like.dim() - (pieces.empty() ? 0 : static_cast<std::int64_t>(pieces[0].steps.size()));
  const auto lead = like.sizes().slice(0, static_cast<std::size_t>(leading));
  const std::int64_t each = c10::multiply_integers(lead);
  std::vector<Message> result;
  for (const Piece& piece : pieces) {  // pieces of one peer stand together
    if (result.empty() || result.back().peer != piece.peer)
      result.push_back({static_cast<int>(piece.peer), {}, {}, {}});
    result.back().pieces.push_back(&piece);
  }
  for (Message& message : result) {
    std::int64_t cells = 0;
    for (const Piece* piece : message.pieces) cells += piece->source.volume();
    message.buffer = collective::writable({cells * each}, like);
    std::int64_t first = 0;
    for (const Piece* piece : message.pieces) {
      auto sizes = lead.vec();
      for (const auto& range : piece->source.ranges) sizes.push_back(range.size());
      const std::int64_t count = piece->source.volume() * each;
      message.contents.push_back(message.buffer.narrow(0, first, count).view(sizes));
      first += count;
    }
  }
  return result;
}

void Transfer::post(const HaloPlan& plan, mpi::Direction direction, int tag) {
  std::vector<mpi::Outgoing> out;
  std::vector<mpi::Incoming> in;
  auto keep = std::make_shared<std::vector<Tensor>>();
  for (const Message& message : outgoing_) {
    out.push_back({message.peer, message.buffer.const_data_ptr(), static_cast<std::int64_t>(message.buffer.nbytes())});
    keep->push_back(message.buffer);
  }
  for (const Message& message : incoming_) {
    in.push_back({message.peer, message.buffer.mutable_data_ptr(), static_cast<std::int64_t>(message.buffer.nbytes())});
    keep->push_back(message.buffer);
  }
  operation_ = mpi::exchange(out, in, tag, plan.comm()->channel(direction), keep);
}

void Transfer::wait(const HaloPlan& plan) {
  mpi::complete(*operation_, {.operation = "halo exchange", .team = plan.comm().get()});
}

Transfer Transfer::of_cells(const Tensor& x, const HaloPlan& plan, mpi::Direction direction, int tag) {
  Transfer transfer;
  transfer.outgoing_ = messages(plan.list().outgoing, x);
  transfer.incoming_ = messages(plan.list().incoming, x);
  for (Message& message : transfer.outgoing_) {
    for (std::size_t i = 0; i < message.pieces.size(); ++i) {
      message.contents[i].copy_(region(x, message.pieces[i]->source, plan.owned()));
    }
  }
  transfer.post(plan, direction, tag);
  return transfer;
}

Transfer Transfer::of_gradients(const Tensor& like, const HaloPlan& plan, const GradientOf& gradient_of,
                                mpi::Direction direction, int tag) {
  Transfer transfer;
  transfer.outgoing_ = messages(plan.list().incoming, like);
  transfer.incoming_ = messages(plan.list().outgoing, like);
  for (Message& message : transfer.outgoing_) {
    for (std::size_t i = 0; i < message.pieces.size(); ++i) {
      message.contents[i].copy_(folded(gradient_of(*message.pieces[i]), *message.pieces[i]));
    }
  }
  transfer.post(plan, direction, tag);
  return transfer;
}

void Transfer::finish_cells(const HaloPlan& plan, const PlaceCells& place) {
  wait(plan);
  for (const Message& message : incoming_) {
    for (std::size_t i = 0; i < message.pieces.size(); ++i) {
      place(*message.pieces[i], unfolded(message.contents[i], *message.pieces[i]));
    }
  }
}

void Transfer::finish_gradients(const Tensor& tile, const HaloPlan& plan) {
  wait(plan);
  for (const Message& message : incoming_) {
    for (std::size_t i = 0; i < message.pieces.size(); ++i) {
      region(tile, message.pieces[i]->source, plan.owned()).add_(message.contents[i].to(tile.device()));
    }
  }
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
