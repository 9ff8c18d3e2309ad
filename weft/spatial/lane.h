// The messages of an exchange in memory of their own, with requests made for it once, and the lanes that a plan keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "weft/mpi/persistent_exchange.h"
#include "weft/mpi/team.h"
#include "weft/partition/exchange_list.h"

namespace weft::spatial {

// All that goes between this rank and one other.
struct Message {
  int peer;
  std::vector<const partition::Piece*> pieces;
  std::vector<at::Tensor> contents;  // views of the buffer, one per piece, as large as the piece's source
  at::Tensor buffer;
};

class Lane {
 public:
  // `like` has the leading sizes and the type. The pieces must live as long.
  Lane(const std::vector<partition::Piece>& outgoing, const std::vector<partition::Piece>& incoming,
       const at::Tensor& like);

  [[nodiscard]] const std::vector<Message>& outgoing() const noexcept { return outgoing_; }
  [[nodiscard]] const std::vector<Message>& incoming() const noexcept { return incoming_; }
  [[nodiscard]] std::int64_t bytes() const;

  // Whether it serves an exchange of tensors like this one: what came last may still be in use.
  [[nodiscard]] bool serves(const at::Tensor& like, mpi::CommunicatorView channel, int tag) const;
  [[nodiscard]] bool in_use() const;

  void start(mpi::CommunicatorView channel, int tag);
  // Blocks until all has come and gone. Throws as the waiter does; the lane is of no use then.
  void finish(mpi::Team& team);

 private:
  void bind(mpi::CommunicatorView channel, int tag);

  std::vector<Message> outgoing_;
  std::vector<Message> incoming_;
  std::vector<std::int64_t> leading_;
  std::int64_t dim_;  // of the tensors: [2, 3, ...] and [2, ...] of three rows begin alike
  at::TensorOptions options_;
  std::unique_ptr<mpi::PersistentExchange> requests_;
};

// What an exchange moves: cells to those who need them, or their gradients back.
enum class Cargo : std::int8_t { kCells = 0, kGradients = 1 };

// Several lanes of a kind are there where several results are in use at the same time.
class LaneStore {
 public:
  // One that serves and is not in use, or null. Those that no longer fit go.
  [[nodiscard]] std::unique_ptr<Lane> take(Cargo cargo, mpi::Direction direction, const at::Tensor& like,
                                           mpi::CommunicatorView channel, int tag);
  void put_back(Cargo cargo, mpi::Direction direction, std::unique_ptr<Lane> lane);
  [[nodiscard]] std::size_t size() const;

 private:
  using Lanes = std::vector<std::unique_ptr<Lane>>;

  mutable std::mutex mutex_;
  std::array<std::array<Lanes, 2>, 2> lanes_;
};

}  // namespace weft::spatial
