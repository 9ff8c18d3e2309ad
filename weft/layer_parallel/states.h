// Arithmetic on states of tensors, and how they become bytes and tensors again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/layer_parallel/layer.h"
#include "weft/multigrid/problem.h"

namespace weft::layer_parallel {

// Shapes and types of a state's tensors; what a rank must know to make or receive one.
struct Layout {
  struct Item {
    at::ScalarType type;
    std::vector<std::int64_t> sizes;
    friend bool operator==(const Item&, const Item&) = default;
  };
  std::vector<Item> items;

  [[nodiscard]] static Layout of(const Tensors& state);
  // As numbers, for sending, and back.
  [[nodiscard]] std::vector<std::int64_t> encode() const;
  [[nodiscard]] static Layout decode(const std::int64_t* numbers);

  [[nodiscard]] std::int64_t bytes() const;
  [[nodiscard]] Tensors zeros(at::Device device) const;
  // "(float32[2, 3], float32[4])".
  [[nodiscard]] std::string describe() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

// Throws (TORCH_CHECK) unless it is one or more defined tensors of a floating or complex type.
void require_state(const Tensors& state, const char* what);

// a x + b y.
[[nodiscard]] Tensors combine(double a, const Tensors& x, double b, const Tensors& y);
// x + dt * y, tensor by tensor; in y's memory where the caller alone holds it: fresh memory costs page faults.
[[nodiscard]] Tensors advance(const Tensors& x, Tensors y, double dt);
[[nodiscard]] double norm(const Tensors& x);
[[nodiscard]] bool finite(const Tensors& x);
[[nodiscard]] Tensors detached(const Tensors& x);

// States as messages. If all are alike they travel bare; otherwise each says what it is.
class Codec {
 public:
  Codec(std::optional<Layout> alike, at::Device device) : alike_(std::move(alike)), device_(device) {}

  // The length of every message, if all are alike.
  [[nodiscard]] std::optional<std::int64_t> bytes() const;
  [[nodiscard]] multigrid::Packed pack(const Tensors& state) const;
  // The tensors may keep using the message's memory.
  [[nodiscard]] Tensors unpack(multigrid::Packed message) const;
  [[nodiscard]] at::Device device() const noexcept { return device_; }

 private:
  std::optional<Layout> alike_;
  at::Device device_;
};

}  // namespace weft::layer_parallel
