#include "weft/layer_parallel/state_transfer.h"

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "weft/collective/tensor.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/message/message_channel.h"
#include "weft/mpi/message/text_collectives.h"
#include "weft/mpi/waiter.h"

namespace weft::layer_parallel {
namespace {

constexpr int kStateTag = 103;

constexpr const char* kOperation = "layer_parallel (input and output)";

mpi::CommView channel(Communicator& communicator) { return communicator.channel(mpi::Direction::kForward); }

multigrid::Packed packed_of(std::string bytes) {
  const auto owner = std::make_shared<std::string>(std::move(bytes));
  return {std::as_bytes(std::span(*owner)), owner};
}

std::string copy_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Tensors send_state(Tensors state, int from, int to, const Codec& codec, Communicator& communicator) {
  if (from == to) return state;
  const mpi::MessageChannel messages(communicator, kOperation, channel(communicator), kStateTag);
  const auto length = codec.bytes();
  if (communicator.rank() == from) {
    const multigrid::Packed packed = codec.pack(state);
    length ? messages.send(packed.bytes, to, packed.owner) : messages.send_sized(packed.bytes, to, packed.owner);
  }
  if (communicator.rank() != to) return state;
  return codec.unpack(packed_of(length ? messages.receive(*length, from) : messages.receive_sized(from)));
}

Tensors broadcast_state(Tensors state, int from, const Codec& codec, Communicator& communicator) {
  if (communicator.size() == 1) return state;
  const bool source = communicator.rank() == from;
  std::string bytes = source ? copy_of(codec.pack(state).bytes) : std::string();
  if (codec.bytes()) {
    bytes.resize(static_cast<std::size_t>(*codec.bytes()));
    const mpi::BlockingScope blocking;
    mpi::broadcast(bytes.data(), std::ssize(bytes), mpi::Datatype::kUInt8, from, channel(communicator));
  } else {
    bytes = mpi::broadcast_text(communicator, bytes, from, kOperation);
  }
  return source ? state : codec.unpack(packed_of(std::move(bytes)));
}

Tensors mean_over_ranks(const Tensors& state, Communicator& communicator) {
  if (communicator.size() == 1) return state;
  Tensors result;
  for (const auto& tensor : state) {
    const at::Tensor in = collective::readable(tensor);
    at::Tensor out = collective::writable(tensor.sizes(), tensor);
    {
      const mpi::BlockingScope blocking;
      mpi::all_reduce(in.const_data_ptr(), out.mutable_data_ptr(), in.numel(),
                      collective::datatype_of(in.scalar_type()), mpi::ReduceOp::kSum, channel(communicator));
    }
    result.push_back(collective::to_device_of(std::move(out), tensor).div_(communicator.size()));
  }
  return result;
}

std::vector<std::int64_t> broadcast_numbers(std::vector<std::int64_t> numbers, int from, Communicator& communicator) {
  const std::string bytes =
      mpi::broadcast_text(communicator, copy_of(std::as_bytes(std::span(numbers))), from, kOperation);
  numbers.resize(bytes.size() / sizeof(std::int64_t));
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

}  // namespace weft::layer_parallel
