// Fake kernels, which compute shapes for tracers, and the rejection of meta tensors outside of tracing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace weft::collective {

// Throws on all ranks unless `x` belongs to a tracer (torch.compile, opcheck, export) or a ShapesOnly scope is active.
// The check is collective when it throws: a rank that passes a tensor of device "meta" would otherwise return at once
// with shapes only, while the other ranks wait for it.
void reject_meta_tensor(const at::Tensor& x, std::int64_t comm);

// Between these calls, operations of this thread on meta tensors return shapes and do not communicate. Calls may nest.
void enter_shapes_only() noexcept;
void leave_shapes_only() noexcept;

class ShapesOnly {
 public:
  ShapesOnly() noexcept { enter_shapes_only(); }
  ~ShapesOnly() { leave_shapes_only(); }
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;
};

// Wraps the shape function of an operation. Its first argument is the input, its last one the communicator.
template <auto kShape>
struct FakeKernel;

template <class... Arguments, at::Tensor (*kShape)(const at::Tensor&, Arguments...)>
struct FakeKernel<kShape> {
  static at::Tensor call(const at::Tensor& x, Arguments... arguments) {
    reject_meta_tensor(x, std::get<sizeof...(Arguments) - 1>(std::tie(arguments...)));
    return kShape(x, arguments...);
  }
};

}  // namespace weft::collective
