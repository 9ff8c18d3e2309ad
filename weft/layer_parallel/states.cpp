#include "weft/layer_parallel/states.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weft::layer_parallel {
namespace {

std::int64_t bytes_of(const StateLayout::Item& item) {
  return c10::multiply_integers(item.sizes) * static_cast<std::int64_t>(c10::elementSize(item.type));
}

// Alignment of tensors in a message, so that a state can use the memory of the message.
constexpr std::int64_t kAlignment = 64;
std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::int64_t payload_bytes(const StateLayout& layout) {
  std::int64_t total = 0;
  for (const auto& item : layout.items) total += aligned(bytes_of(item));
  return total;
}

void write(const Tensors& state, std::byte* to) {
  for (const auto& tensor : state) {
    const at::Tensor readable = tensor.cpu().contiguous();
    const auto bytes = static_cast<std::int64_t>(readable.nbytes());
    if (bytes > 0) std::memcpy(to, readable.const_data_ptr(), static_cast<std::size_t>(bytes));
    to += aligned(bytes);
  }
}

// True if a sum with `other` may overwrite `tensor`: nothing else refers to its memory, and the layouts are equal.
bool may_hold(const at::Tensor& tensor, const at::Tensor& other) {
  return tensor.use_count() == 1 && tensor.has_storage() && tensor.storage().use_count() == 1 &&
         !tensor.requires_grad() && tensor.is_contiguous() && tensor.sizes() == other.sizes() &&
         tensor.scalar_type() == other.scalar_type() && tensor.device() == other.device();
}

}  // namespace

StateLayout StateLayout::of(const Tensors& state) {
  StateLayout layout;
  for (const auto& tensor : state) layout.items.push_back({tensor.scalar_type(), tensor.sizes().vec()});
  return layout;
}

std::vector<std::int64_t> StateLayout::encode() const {
  std::vector<std::int64_t> numbers{static_cast<std::int64_t>(items.size())};
  for (const auto& item : items) {
    numbers.push_back(static_cast<std::int64_t>(item.type));
    numbers.push_back(static_cast<std::int64_t>(item.sizes.size()));
    numbers.insert(numbers.end(), item.sizes.begin(), item.sizes.end());
  }
  return numbers;
}

StateLayout StateLayout::decode(const std::int64_t* numbers) {
  StateLayout layout;
  layout.items.resize(static_cast<std::size_t>(*numbers++));
  for (auto& item : layout.items) {
    item.type = static_cast<at::ScalarType>(*numbers++);
    const std::int64_t dims = *numbers++;
    item.sizes.assign(numbers, numbers + dims);
    numbers += dims;
  }
  return layout;
}

std::int64_t StateLayout::bytes() const {
  // A single tensor is sent from and received into its own memory, without padding.
  return items.size() == 1 ? bytes_of(items.front()) : payload_bytes(*this);
}

Tensors StateLayout::zeros(at::Device device) const {
  Tensors state;
  for (const auto& item : items) state.push_back(at::zeros(item.sizes, at::TensorOptions(device).dtype(item.type)));
  return state;
}

Tensors StateLayout::sample(at::Device device) const {
  Tensors state;
  for (const auto& item : items) {
    const at::Tensor values = at::linspace(0.5, 1.5, c10::multiply_integers(item.sizes));
    state.push_back(values.to(device, item.type).view(item.sizes));
  }
  return state;
}

std::string StateLayout::describe() const {
  std::string text = "(";
  for (const auto& item : items) {
    if (text.size() > 1) text += ", ";
    text += c10::toString(item.type);
    text += "[";
    for (std::size_t i = 0; i < item.sizes.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(item.sizes[i]);
    text += "]";
  }
  return text + ")";
}

void require_state(const Tensors& state, const char* what) {
  TORCH_CHECK(!state.empty(), "weft: expected ", what, " of at least one tensor, got an empty list");
  for (const auto& tensor : state) {
    TORCH_CHECK(tensor.defined() && (tensor.is_floating_point() || tensor.is_complex()), "weft: expected ", what,
                " of floating-point or complex tensors, got ",
                tensor.defined() ? c10::toString(tensor.scalar_type()) : "an undefined tensor");
  }
}

Tensors combine(double a, const Tensors& x, double b, const Tensors& y) {
  Tensors sum;
  sum.reserve(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (a == 1) {
      sum.push_back(at::add(x[i], y[i], b));
    } else if (b == 1) {
      sum.push_back(at::add(y[i], x[i], a));
    } else {
      sum.push_back(at::mul(x[i], a).add_(y[i], b));
    }
  }
  return sum;
}

Tensors advance(const Tensors& x, Tensors y, double dt) {
  TORCH_CHECK(x.size() == y.size(), "weft: a layer in x + dt * layer(x) got a state of ", x.size(),
              " tensors but returned ", y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (may_hold(y[i], x[i])) {
      at::add_out(y[i], x[i], y[i], dt);
    } else {
      y[i] = at::add(x[i], y[i], dt);
    }
  }
  return y;
}

double norm(const Tensors& x) {
  double squares = 0;
  for (const auto& tensor : x) {
    const auto length = at::linalg_vector_norm(tensor, 2, std::nullopt, false).item<double>();
    squares += length * length;
  }
  return std::sqrt(squares);
}

bool finite(const Tensors& x) {
  return std::all_of(x.begin(), x.end(),
                     [](const at::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); });
}

Tensors detached(const Tensors& x) {
  Tensors result;
  result.reserve(x.size());
  for (const auto& tensor : x) result.push_back(tensor.detach());
  return result;
}

void assign(const at::Tensor& tensor, const at::Tensor& values) {
  if (at::has_internal_overlap(tensor) != at::MemOverlap::Yes) {
    tensor.variable_data().copy_(values);
  } else if (!tensor.equal(values)) {  // an expanded tensor cannot be written
    tensor.set_data(values.clone().to(tensor.device()));
  }
}

std::optional<std::int64_t> Codec::bytes() const { return alike_ ? std::optional(alike_->bytes()) : std::nullopt; }

multigrid::Packed Codec::pack(const Tensors& state) const {
  if (alike_) {
    const StateLayout layout = StateLayout::of(state);
    TORCH_CHECK(layout == *alike_, "weft: expected a state ", alike_->describe(), ", got ", layout.describe());
    if (state.size() == 1) {
      auto readable = std::make_shared<at::Tensor>(state.front().cpu().contiguous());
      return {{static_cast<const std::byte*>(readable->const_data_ptr()), readable->nbytes()}, readable};
    }
  }
  const StateLayout layout = StateLayout::of(state);
  std::vector<std::int64_t> label;
  if (!alike_) {
    label = layout.encode();
    label.insert(label.begin(), static_cast<std::int64_t>(label.size()));
  }
  const std::int64_t head = aligned(static_cast<std::int64_t>(label.size() * sizeof(std::int64_t)));
  auto buffer = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(head + payload_bytes(layout)));
  if (!label.empty()) std::memcpy(buffer->data(), label.data(), label.size() * sizeof(std::int64_t));
  write(state, buffer->data() + head);
  return {*buffer, buffer};
}

Tensors Codec::unpack(multigrid::Packed message) const {
  const std::byte* data = message.bytes.data();
  StateLayout layout;
  if (alike_) {
    layout = *alike_;
  } else {
    std::int64_t length = 0;
    std::memcpy(&length, data, sizeof length);
    std::vector<std::int64_t> label(static_cast<std::size_t>(length));
    std::memcpy(label.data(), data + sizeof length, label.size() * sizeof(std::int64_t));
    layout = StateLayout::decode(label.data());
    data += aligned((length + 1) * static_cast<std::int64_t>(sizeof(std::int64_t)));
  }
  Tensors state;
  for (const auto& item : layout.items) {
    const auto options = at::TensorOptions().dtype(item.type);
    // The state is immutable and the only owner of the message's memory, so it can use that memory.
    auto* memory = const_cast<std::byte*>(data);  // NOLINT
    at::Tensor tensor = bytes_of(item) == 0
                            ? at::empty(item.sizes, options)
                            : at::from_blob(memory, item.sizes, [owner = message.owner](void*) {}, options);
    state.push_back(tensor.to(device_));
    data += aligned(bytes_of(item));
  }
  return state;
}

}  // namespace weft::layer_parallel
