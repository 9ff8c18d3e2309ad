// Shape-only kernels for tracing, and the refusal of tensors without data that no tracer made.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace weft::collective {

// Collective, unless `x` belongs to a tracer (torch.compile, opcheck, export) or only shapes are asked for: throws on
// all ranks. A rank that was given a tensor of the device "meta" would otherwise return at once, with shapes only, and
// leave the others waiting.
void refuse_without_data(const at::Tensor& x, std::int64_t comm);

// Between these two, in this thread, operations on tensors without data give shapes and communicate nothing: for those
// who ask what a network would do. They nest.
void enter_shapes_only() noexcept;
void leave_shapes_only() noexcept;

class ShapesOnly {
 public:
  ShapesOnly() noexcept { enter_shapes_only(); }
  ~ShapesOnly() { leave_shapes_only(); }
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;
};

// Wraps an operation's shape function, whose first argument is the input and whose last is the communicator.
template <auto kShape>
struct Traced;

template <class... Arguments, at::Tensor (*kShape)(const at::Tensor&, Arguments...)>
struct Traced<kShape> {
  static at::Tensor call(const at::Tensor& x, Arguments... arguments) {
    refuse_without_data(x, std::get<sizeof...(Arguments) - 1>(std::tie(arguments...)));
    return kShape(x, arguments...);
  }
};

}  // namespace weft::collective
