// Message buffers of an exchange with their persistent MPI requests, and the pool of them that a plan keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "weft/mpi/communicator.h"
#include "weft/mpi/message/persistent_exchange.h"
#include "weft/partition/exchange_list.h"
#include "weft/spatial/exchange/sizes.h"

namespace weft::spatial {

// The message between this rank and a peer.
struct Message {
  int peer;
  std::vector<const partition::Piece*> pieces;
  std::vector<at::Tensor> contents;  // views of the buffer, one per piece, with the size of the piece's source
  at::Tensor buffer;
};

class ExchangeBuffers {
 public:
  // `like` has the leading sizes and the type. The pieces must outlive the buffers.
  ExchangeBuffers(const std::vector<partition::Piece>& outgoing, const std::vector<partition::Piece>& incoming,
                  const at::Tensor& like);

  [[nodiscard]] const std::vector<Message>& outgoing() const noexcept { return outgoing_; }
  [[nodiscard]] const std::vector<Message>& incoming() const noexcept { return incoming_; }
  [[nodiscard]] std::int64_t bytes() const;

  // Returns true if the buffers fit an exchange of tensors like this one. They may still be in use.
  [[nodiscard]] bool serves(const at::Tensor& like, mpi::CommView channel, int tag) const;
  [[nodiscard]] bool in_use() const;

  void start(mpi::CommView channel, int tag);
  // Blocks until all messages have been sent and received. After an exception the buffers are unusable.
  void finish(Communicator& communicator);

 private:
  void bind(mpi::CommView channel, int tag);

  Sizes leading_;
  std::vector<Message> outgoing_;
  std::vector<Message> incoming_;
  std::int64_t dim_;  // dimensions of the tensors, because [2, 3, ...] and [2, ...] with three rows start alike
  at::TensorOptions options_;
  std::unique_ptr<mpi::PersistentExchange> requests_;
};

// The content of an exchange: cells to the ranks that need them, or their gradients back.
enum class Cargo : std::int8_t { kCells = 0, kGradients = 1 };

// The pool holds several buffers of a kind if several results are in use at the same time.
class ExchangeBufferPool {
 public:
  // Returns buffers that fit and are not in use, or null. Frees those that no longer fit.
  [[nodiscard]] std::unique_ptr<ExchangeBuffers> take(Cargo cargo, mpi::Direction direction, const at::Tensor& like,
                                                      mpi::CommView channel, int tag);
  void put_back(Cargo cargo, mpi::Direction direction, std::unique_ptr<ExchangeBuffers> buffers);
  [[nodiscard]] std::size_t size() const;

 private:
  using Pool = std::vector<std::unique_ptr<ExchangeBuffers>>;

  mutable std::mutex mutex_;
  std::array<std::array<Pool, 2>, 2> buffers_;
};

}  // namespace weft::spatial
