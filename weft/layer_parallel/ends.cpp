#include "weft/layer_parallel/ends.h"

#include <cstring>
#include <memory>
#include <utility>

#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/exchange.h"
#include "weft/mpi/waiter.h"

namespace weft::layer_parallel {
namespace {

constexpr int kEndsTag = 103;

using Bytes = std::vector<std::byte>;

mpi::CommunicatorView channel(mpi::Team& team) { return team.channel(mpi::Direction::kForward); }

mpi::WaitContext waiting(mpi::Team& team) { return {.operation = "layer_parallel (input and output)", .team = &team}; }

void send(const multigrid::Packed& packed, bool length_known, int to, mpi::Team& team) {
  auto keep = std::make_shared<std::pair<std::int64_t, multigrid::Packed>>(packed.bytes.size(), packed);
  std::vector<mpi::Outgoing> pieces;
  if (!length_known) pieces.push_back({to, &keep->first, sizeof keep->first});
  pieces.push_back({to, packed.bytes.data(), keep->first});
  mpi::complete(*mpi::exchange(pieces, {}, kEndsTag, channel(team), keep), waiting(team));
}

std::shared_ptr<Bytes> receive(std::int64_t bytes, int from, mpi::Team& team) {
  auto buffer = std::make_shared<Bytes>(static_cast<std::size_t>(bytes));
  mpi::complete(*mpi::exchange({}, {{from, buffer->data(), bytes}}, kEndsTag, channel(team), buffer), waiting(team));
  return buffer;
}

std::int64_t receive_length(int from, mpi::Team& team) {
  const auto bytes = receive(sizeof(std::int64_t), from, team);
  std::int64_t length = 0;
  std::memcpy(&length, bytes->data(), sizeof length);
  return length;
}

void broadcast(void* data, std::int64_t bytes, int from, mpi::Team& team) {
  const mpi::BlockingScope blocking;
  mpi::broadcast(data, bytes, mpi::Datatype::kUInt8, from, channel(team));
}

}  // namespace

Tensors carry(Tensors state, int from, int to, const Codec& codec, mpi::Team& team) {
  if (from == to) return state;
  if (team.rank() == from) send(codec.pack(state), codec.bytes().has_value(), to, team);
  if (team.rank() != to) return state;
  const auto buffer = receive(codec.bytes() ? *codec.bytes() : receive_length(from, team), from, team);
  return codec.unpack({*buffer, buffer});
}

Tensors spread(Tensors state, int from, const Codec& codec, mpi::Team& team) {
  if (team.size() == 1) return state;
  const bool source = team.rank() == from;
  multigrid::Packed packed;
  if (source) packed = codec.pack(state);
  auto length = static_cast<std::int64_t>(packed.bytes.size());
  if (!codec.bytes()) {
    broadcast(&length, sizeof length, from, team);
  } else {
    length = *codec.bytes();
  }
  auto buffer = std::make_shared<Bytes>(static_cast<std::size_t>(length));
  if (source && length > 0) std::memcpy(buffer->data(), packed.bytes.data(), buffer->size());
  broadcast(buffer->data(), length, from, team);
  return source ? state : codec.unpack({*buffer, buffer});
}

Tensors mean(const Tensors& state, mpi::Team& team) {
  if (team.size() == 1) return state;
  Tensors result;
  for (const auto& tensor : state) {
    const at::Tensor in = collective::readable(tensor);
    at::Tensor out = collective::writable(tensor.sizes(), tensor);
    {
      const mpi::BlockingScope blocking;
      mpi::all_reduce(in.const_data_ptr(), out.mutable_data_ptr(), in.numel(),
                      collective::datatype_of(in.scalar_type()), mpi::ReduceOp::kSum, channel(team));
    }
    result.push_back(collective::delivered(std::move(out), tensor).div_(team.size()));
  }
  return result;
}

std::vector<std::int64_t> announce(std::vector<std::int64_t> numbers, int from, mpi::Team& team) {
  auto count = static_cast<std::int64_t>(numbers.size());
  broadcast(&count, sizeof count, from, team);
  numbers.resize(static_cast<std::size_t>(count));
  broadcast(numbers.data(), count * static_cast<std::int64_t>(sizeof(std::int64_t)), from, team);
  return numbers;
}

}  // namespace weft::layer_parallel
