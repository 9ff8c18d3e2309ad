// Arithmetic on states of tensors, and their serialization.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/layer_parallel/layer.h"
#include "weft/multigrid/problem/problem.h"

namespace weft::layer_parallel {

// Shapes and types of a state's tensors, to create or receive one.
struct StateLayout {
  struct Item {
    at::ScalarType type;
    std::vector<std::int64_t> sizes;
    friend bool operator==(const Item&, const Item&) = default;
  };
  std::vector<Item> items;

  [[nodiscard]] static StateLayout of(const Tensors& state);
  // Converts to integers for messages; decode() converts back.
  [[nodiscard]] std::vector<std::int64_t> encode() const;
  [[nodiscard]] static StateLayout decode(const std::int64_t* numbers);

  [[nodiscard]] std::int64_t bytes() const;
  [[nodiscard]] Tensors zeros(at::Device device) const;
  // Returns values between 0.5 and 1.5, for which more functions are defined than for zeros.
  [[nodiscard]] Tensors sample(at::Device device) const;
  // Returns text such as "(float32[2, 3], float32[4])".
  [[nodiscard]] std::string describe() const;
  friend bool operator==(const StateLayout&, const StateLayout&) = default;
};

// Throws (TORCH_CHECK) unless `state` has at least one tensor, all of floating-point or complex types.
void require_state(const Tensors& state, const char* what);

// Returns a x + b y for each tensor.
[[nodiscard]] Tensors combine(double a, const Tensors& x, double b, const Tensors& y);
// Returns x + dt * y for each tensor. Reuses the memory of y if nothing else refers to it: fresh memory costs page
// faults.
[[nodiscard]] Tensors advance(const Tensors& x, Tensors y, double dt);
[[nodiscard]] double norm(const Tensors& x);
[[nodiscard]] bool finite(const Tensors& x);
[[nodiscard]] Tensors detached(const Tensors& x);
// Copies values of the same shape into a tensor. The tensor's version does not change, so graphs that saved it do not
// notice.
void assign(const at::Tensor& tensor, const at::Tensor& values);

// Converts states to messages. If all states have one layout, messages omit it; otherwise each contains its layout.
class Codec {
 public:
  Codec(std::optional<StateLayout> alike, at::Device device) : alike_(std::move(alike)), device_(device) {}

  // The length of every message if all states have one layout.
  [[nodiscard]] std::optional<std::int64_t> bytes() const;
  [[nodiscard]] multigrid::Packed pack(const Tensors& state) const;
  // Returns the state. Its tensors may use the memory of the message.
  [[nodiscard]] Tensors unpack(multigrid::Packed message) const;
  [[nodiscard]] at::Device device() const noexcept { return device_; }

 private:
  std::optional<StateLayout> alike_;
  at::Device device_;
};

}  // namespace weft::layer_parallel
