#include "weft/layer_parallel/layer_store.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "weft/layer_parallel/states.h"
#include "weft/mpi/message/exchange.h"

namespace weft::layer_parallel {
namespace {

// Tags on the forward channel of the communicator, outside of solves.
constexpr int kChangedTag = 101;
constexpr int kWeightsTag = 102;

template <class Visit>
void for_each_tensor(const Layer& layer, Visit&& visit) {
  for (const auto& tensor : layer.parameters) visit(tensor);
  for (const auto& tensor : layer.buffers) visit(tensor);
}

std::size_t packed_bytes(const Layer& layer) {
  std::size_t total = 0;
  for_each_tensor(layer, [&](const at::Tensor& tensor) { total += tensor.nbytes(); });
  return total;
}

using Bytes = std::shared_ptr<std::vector<std::byte>>;

// A message is the length of the description, the description, and the tensors, which are aligned.
std::size_t tensors_offset(std::size_t description) {
  constexpr std::size_t kAlignment = alignof(std::max_align_t);
  return (sizeof description + description + kAlignment - 1) / kAlignment * kAlignment;
}

Bytes pack(const Layer& layer, const std::string& description) {
  const std::size_t length = description.size();
  auto packed = std::make_shared<std::vector<std::byte>>(tensors_offset(length) + packed_bytes(layer));
  std::byte* to = packed->data();
  const auto append = [&](const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    to += bytes;
  };
  append(&length, sizeof length);
  append(description.data(), length);
  to = packed->data() + tensors_offset(length);
  for_each_tensor(layer, [&](const at::Tensor& tensor) {
    const at::Tensor readable = tensor.detach().cpu().contiguous();
    append(readable.nbytes() > 0 ? readable.const_data_ptr() : nullptr, readable.nbytes());
  });
  return packed;
}

void unpack(std::span<const std::byte> packed, const Layer& layer) {
  TORCH_CHECK(packed.size() == packed_bytes(layer), "its owner sent ", packed.size(),
              " bytes of parameters and buffers, but the copy on this rank has ", packed_bytes(layer),
              " bytes; change their shapes and types on all ranks alike");
  const c10::AutoGradMode no_grad(false);
  auto* from = const_cast<std::byte*>(packed.data());  // from_blob only reads it
  for_each_tensor(layer, [&](const at::Tensor& tensor) {
    if (tensor.nbytes() == 0) return;
    const at::Tensor values = at::from_blob(from, tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
    from += tensor.nbytes();
    assign(tensor, values);
  });
}

// The length of the message that follows; the first message of a loan.
constexpr std::int64_t kUnchanged = -1;
Bytes length_message(std::int64_t length) {
  auto bytes = std::make_shared<std::vector<std::byte>>(sizeof length);
  std::memcpy(bytes->data(), &length, sizeof length);
  return bytes;
}
std::int64_t length_in(const std::vector<std::byte>& message) {
  std::int64_t length = kUnchanged;
  std::memcpy(&length, message.data(), sizeof length);
  return length;
}

// Messages to and from several ranks, exchanged together. They own their memory, because an interrupted wait returns
// before MPI releases it.
class Delivery {
 public:
  explicit Delivery(Communicator& communicator) : communicator_(communicator) {}

  void send(int dest, const Bytes& bytes) {
    outgoing_.push_back({dest, bytes->data(), static_cast<std::int64_t>(bytes->size())});
    held_.push_back(bytes);
  }
  void receive(int source, const Bytes& bytes) {
    incoming_.push_back({source, bytes->data(), static_cast<std::int64_t>(bytes->size())});
    received_.push_back(bytes);
  }
  // Blocks, returns the received messages in the order of receive(), and clears the object.
  std::vector<Bytes> run(int tag) {
    auto keep = std::make_shared<std::vector<Bytes>>(std::move(held_));
    keep->insert(keep->end(), received_.begin(), received_.end());
    const auto operation = mpi::exchange(std::exchange(outgoing_, {}), std::exchange(incoming_, {}), tag,
                                         communicator_.channel(mpi::Direction::kForward), keep);
    mpi::complete(*operation,
                  {.operation = "layer_parallel (weights of coarse steps)", .communicator = &communicator_});
    held_.clear();
    return std::exchange(received_, {});
  }

 private:
  Communicator& communicator_;
  std::vector<mpi::Outgoing> outgoing_;
  std::vector<mpi::Incoming> incoming_;
  std::vector<Bytes> held_;
  std::vector<Bytes> received_;
};

}  // namespace

LayerStore::LayerStore(const Plan& plan, int rank, std::map<std::int64_t, Layer> layers) : own_(plan.layers_of(rank)) {
  const auto keep = [&](std::int64_t number) { layers_.insert(layers.extract(number)); };
  for (std::int64_t number = own_.begin; number < own_.end; ++number) keep(number);
  for (const std::int64_t number : plan.borrowed(rank)) {
    keep(number);
    borrowed_.push_back({number, plan.owner(number), {}});
  }
  for (int peer = 0; peer < plan.ranks(); ++peer) {
    if (peer == rank) continue;
    for (const std::int64_t number : plan.borrowed(peer)) {
      if (own_.contains(number)) lent_.push_back({number, peer, {}});
    }
  }
}

void LayerStore::rebind(std::int64_t number, Tensors parameters, Tensors buffers) {
  Layer& layer = layers_.at(number);
  layer.parameters = std::move(parameters);
  layer.buffers = std::move(buffers);
}

// Applies the message of the owner to a borrowed layer.
void LayerStore::adopt(const Loan& loan, const std::vector<std::byte>& message, const PassFunctions& functions) {
  std::size_t length = 0;
  std::memcpy(&length, message.data(), sizeof length);
  const auto* description = reinterpret_cast<const char*>(message.data() + sizeof length);
  if (functions.update) functions.update(loan.layer, std::string(description, length));
  unpack(std::span(message).subspan(tensors_offset(length)), layers_.at(loan.layer));
}

void LayerStore::refresh(Communicator& communicator, const PassFunctions& functions) {
  if (lent_.empty() && borrowed_.empty()) return;
  // The other ranks take part in the exchange in any case, so a failure must not interrupt it.
  const auto attempt = [&](std::int64_t number, auto&& work) {
    Layer& layer = layers_.at(number);
    try {
      layer.problem = nullptr;
      work(layer);
    } catch (...) {
      layer.problem = std::current_exception();
    }
  };
  // First exchange lengths, then the changed layers: evaluation sends only one number per loan.
  Delivery delivery(communicator);
  std::vector<Bytes> changed(lent_.size());  // null if the borrower is up to date
  for (std::size_t i = 0; i < lent_.size(); ++i) {
    attempt(lent_[i].layer, [&](const Layer& layer) {
      Bytes packed = pack(layer, functions.describe ? functions.describe(lent_[i].layer) : std::string());
      if (!lent_[i].held || *lent_[i].held != *packed) changed[i] = std::move(packed);
    });
    delivery.send(lent_[i].peer, length_message(changed[i] ? std::ssize(*changed[i]) : kUnchanged));
  }
  for (const Loan& loan : borrowed_) delivery.receive(loan.peer, length_message(kUnchanged));
  const std::vector<Bytes> lengths = delivery.run(kChangedTag);

  for (std::size_t i = 0; i < lent_.size(); ++i) {
    if (changed[i]) delivery.send(lent_[i].peer, changed[i]);
  }
  std::vector<const Loan*> outdated;
  for (std::size_t i = 0; i < borrowed_.size(); ++i) {
    const std::int64_t length = length_in(*lengths[i]);
    if (length == kUnchanged) continue;
    outdated.push_back(&borrowed_[i]);
    delivery.receive(borrowed_[i].peer, std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(length)));
  }
  const std::vector<Bytes> messages = delivery.run(kWeightsTag);
  for (std::size_t i = 0; i < outdated.size(); ++i) {
    attempt(outdated[i]->layer, [&](const Layer&) { adopt(*outdated[i], *messages[i], functions); });
  }
  for (std::size_t i = 0; i < lent_.size(); ++i) {
    if (changed[i]) lent_[i].held = std::move(changed[i]);
  }
}

}  // namespace weft::layer_parallel
