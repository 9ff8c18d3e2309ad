#include "weft/spatial/exchange/exchange_buffers.h"

#include <algorithm>

#include "weft/collective/tensor.h"
#include "weft/mpi/waiter.h"

namespace weft::spatial {
namespace {

using at::Tensor;
using partition::Piece;

std::vector<Message> messages(const std::vector<Piece>& pieces, const Sizes& leading, const Tensor& like) {
  const std::int64_t each = c10::multiply_integers(leading);
  std::vector<Message> result;
  for (const Piece& piece : pieces) {  // pieces of one peer are adjacent
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
      auto sizes = leading;
      for (const auto& range : piece->source.ranges) sizes.push_back(range.size());
      const std::int64_t count = piece->source.volume() * each;
      message.contents.push_back(message.buffer.narrow(0, first, count).view(sizes));
      first += count;
    }
  }
  return result;
}

Sizes leading_of(const Tensor& x, const std::vector<Piece>& pieces) {
  const std::size_t dims = pieces.empty() ? 0 : pieces[0].steps.size();
  return x.sizes().slice(0, static_cast<std::size_t>(x.dim()) - dims).vec();
}

// Returns true if another reference to the tensor or to its memory exists.
bool shared(const Message& message) {
  if (message.buffer.storage().use_count() > 1 + message.contents.size()) return true;
  return std::any_of(message.contents.begin(), message.contents.end(),
                     [](const Tensor& x) { return x.use_count() > 1; });
}

}  // namespace

ExchangeBuffers::ExchangeBuffers(const std::vector<Piece>& outgoing, const std::vector<Piece>& incoming,
                                 const Tensor& like)
    : leading_(leading_of(like, outgoing.empty() ? incoming : outgoing)),
      outgoing_(messages(outgoing, leading_, like)),
      incoming_(messages(incoming, leading_, like)),
      dim_(like.dim()),
      options_(like.options()) {}

std::int64_t ExchangeBuffers::bytes() const {
  std::size_t sum = 0;
  for (const auto* messages : {&outgoing_, &incoming_}) {
    for (const Message& message : *messages) sum += message.buffer.nbytes();
  }
  return static_cast<std::int64_t>(sum);
}

bool ExchangeBuffers::serves(const Tensor& like, mpi::CommView channel, int tag) const {
  return requests_ != nullptr && requests_->is_for(channel, tag) && like.scalar_type() == options_.dtype() &&
         like.device() == options_.device() && like.dim() == dim_ &&
         like.sizes().slice(0, leading_.size()) == at::IntArrayRef(leading_);
}

bool ExchangeBuffers::in_use() const { return std::any_of(incoming_.begin(), incoming_.end(), shared); }

void ExchangeBuffers::start(mpi::CommView channel, int tag) {
  if (requests_ == nullptr) bind(channel, tag);
  requests_->start();
}

void ExchangeBuffers::bind(mpi::CommView channel, int tag) {
  std::vector<mpi::Outgoing> out;
  std::vector<mpi::Incoming> in;
  auto keep = std::make_shared<std::vector<Tensor>>();
  for (const Message& message : outgoing_) {
    keep->push_back(message.buffer);
    out.push_back({message.peer, message.buffer.const_data_ptr(), static_cast<std::int64_t>(message.buffer.nbytes())});
  }
  for (const Message& message : incoming_) {
    keep->push_back(message.buffer);
    in.push_back({message.peer, message.buffer.mutable_data_ptr(), static_cast<std::int64_t>(message.buffer.nbytes())});
  }
  requests_ = std::make_unique<mpi::PersistentExchange>(out, in, tag, channel, keep);
}

void ExchangeBuffers::finish(Communicator& communicator) {
  mpi::complete(*requests_, {.operation = "halo exchange", .communicator = &communicator});
}

std::unique_ptr<ExchangeBuffers> ExchangeBufferPool::take(Cargo cargo, mpi::Direction direction, const Tensor& like,
                                                          mpi::CommView channel, int tag) {
  const std::lock_guard lock(mutex_);
  Pool& pool = buffers_[static_cast<std::size_t>(cargo)][static_cast<std::size_t>(direction)];
  std::erase_if(pool, [&](const auto& buffers) { return !buffers->serves(like, channel, tag); });
  const auto found = std::find_if(pool.begin(), pool.end(), [](const auto& buffers) { return !buffers->in_use(); });
  if (found == pool.end()) return nullptr;
  std::unique_ptr<ExchangeBuffers> buffers = std::move(*found);
  pool.erase(found);
  return buffers;
}

void ExchangeBufferPool::put_back(Cargo cargo, mpi::Direction direction, std::unique_ptr<ExchangeBuffers> buffers) {
  const std::lock_guard lock(mutex_);
  buffers_[static_cast<std::size_t>(cargo)][static_cast<std::size_t>(direction)].push_back(std::move(buffers));
}

std::size_t ExchangeBufferPool::size() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& by_direction : buffers_) {
    for (const Pool& pool : by_direction) count += pool.size();
  }
  return count;
}

}  // namespace weft::spatial
