#include "weft/layer_parallel/layer_store.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <string>
#include <utility>

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

std::vector<std::byte> pack(const Layer& layer) {
  std::vector<std::byte> packed(packed_bytes(layer));
  std::byte* to = packed.data();
  for_each_tensor(layer, [&](const at::Tensor& tensor) {
    const at::Tensor readable = tensor.detach().cpu().contiguous();
    if (readable.nbytes() > 0) std::memcpy(to, readable.const_data_ptr(), readable.nbytes());
    to += readable.nbytes();
  });
  return packed;
}

void unpack(std::vector<std::byte>& packed, const Layer& layer) {
  const c10::AutoGradMode no_grad(false);
  std::byte* from = packed.data();
  for_each_tensor(layer, [&](const at::Tensor& tensor) {
    if (tensor.nbytes() > 0) {
      tensor.detach().copy_(at::from_blob(from, tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type())));
    }
    from += tensor.nbytes();
  });
}

using Bytes = std::shared_ptr<std::vector<std::byte>>;
constexpr std::byte kSame{0};
constexpr std::byte kChanged{1};
Bytes one_byte(std::byte value) { return std::make_shared<std::vector<std::byte>>(1, value); }

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

void LayerStore::refresh(Communicator& communicator) {
  if (lent_.empty() && borrowed_.empty()) return;
  // First exchange whether the weights changed, then the changed weights: evaluation sends only one byte per loan.
  Delivery delivery(communicator);
  std::vector<Bytes> changed(lent_.size());  // null if the borrower is up to date
  for (std::size_t i = 0; i < lent_.size(); ++i) {
    auto packed = std::make_shared<std::vector<std::byte>>(pack(layers_.at(lent_[i].layer)));
    if (!lent_[i].held || *lent_[i].held != *packed) changed[i] = std::move(packed);
    delivery.send(lent_[i].peer, one_byte(changed[i] ? kChanged : kSame));
  }
  for (const Loan& loan : borrowed_) delivery.receive(loan.peer, one_byte(kSame));
  const std::vector<Bytes> states = delivery.run(kChangedTag);

  for (std::size_t i = 0; i < lent_.size(); ++i) {
    if (changed[i]) delivery.send(lent_[i].peer, changed[i]);
  }
  std::vector<Layer*> outdated;
  for (std::size_t i = 0; i < borrowed_.size(); ++i) {
    if (states[i]->front() == kSame) continue;
    outdated.push_back(&layers_.at(borrowed_[i].layer));
    delivery.receive(borrowed_[i].peer, std::make_shared<std::vector<std::byte>>(packed_bytes(*outdated.back())));
  }
  const std::vector<Bytes> weights = delivery.run(kWeightsTag);
  for (std::size_t i = 0; i < outdated.size(); ++i) unpack(*weights[i], *outdated[i]);
  for (std::size_t i = 0; i < lent_.size(); ++i) {
    if (changed[i]) lent_[i].held = std::move(changed[i]);
  }
}

}  // namespace weft::layer_parallel
