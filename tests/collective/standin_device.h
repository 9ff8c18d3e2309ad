// The device "standin", implemented with PyTorch's PrivateUse1 hooks; the CPU computes for it. Available everywhere.
//
// Its memory is host memory with scrambled bytes: direct accesses that bypass torch's copies see wrong values. Include
// it in one translation unit only.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace weft::standin {

using at::Tensor;

constexpr auto kKeys = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
inline const at::Device kDevice(at::kPrivateUse1, 0);

// Memory

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    auto host = c10::GetCPUAllocator()->allocate(bytes);
    void* data = host.get();
    auto* owner = new c10::DataPtr(std::move(host));
    return {data, owner, [](void* context) { delete static_cast<c10::DataPtr*>(context); }, kDevice};
  }
  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }
};

inline Allocator allocator;

inline at::ScalarType bits_of(const Tensor& x) {
  switch (x.element_size()) {
    case 1:
      return at::kByte;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    case 8:
      return at::kLong;
    default:
      return at::kComplexDouble;
  }
}

// The raw device memory, to copy bytes from and to the CPU.
inline Tensor raw(const Tensor& x) {
  return at::from_blob(x.mutable_data_ptr(), x.sizes(), x.strides(), at::TensorOptions().dtype(bits_of(x)));
}

inline void scramble(const Tensor& contiguous) {
  auto* bytes = static_cast<unsigned char*>(contiguous.mutable_data_ptr());
  for (std::size_t i = 0; i < contiguous.nbytes(); ++i) bytes[i] ^= 0x5aU;
}

inline Tensor to_host(const Tensor& x) {
  Tensor host = at::detail::empty_cpu(x.sizes(), x.scalar_type());
  host.view(bits_of(x)).copy_(raw(x));
  scramble(host);
  return host;
}

inline Tensor copy_from(const Tensor& from, const Tensor& to, bool /*non_blocking*/) {
  const Tensor host = from.device().is_cpu() ? from : to_host(from);
  if (to.device().is_cpu()) {
    to.copy_(host);
  } else {
    const Tensor sent = Tensor(at::detail::empty_cpu(to.sizes(), to.scalar_type())).copy_(host);
    scramble(sent);
    raw(to).copy_(sent.view(bits_of(to)));
  }
  return to;
}

inline Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  at::native::resize_(to, from.sizes());
  return copy_from(from, to, false);
}

inline Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
                    std::optional<at::Device> /*device*/, std::optional<bool> /*pin*/,
                    std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, kKeys, c10::dtype_or_default(type), format);
}

inline Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                            std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                            std::optional<bool> /*pin*/) {
  return at::detail::empty_strided_generic(size, stride, &allocator, kKeys, c10::dtype_or_default(type));
}

inline void leave_to_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

// Devices: one, with one stream.

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(c10::Device /*device*/) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream exchangeStream(c10::Stream /*stream*/) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex /*device*/) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex /*device*/) const override { return 0; }
};

inline const bool registered = [] {
  c10::register_privateuse1_backend("standin");
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator);
  at::RegisterPrivateUse1HooksInterface(new Hooks());  // torch takes ownership
  return true;
}();

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&leave_to_cpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", static_cast<Tensor (*)(const Tensor&, at::IntArrayRef)>(&at::native::view));
  m.impl("resize_", static_cast<const Tensor& (*)(const Tensor&, at::IntArrayRef, std::optional<at::MemoryFormat>)>(
                        &at::native::resize_));
}

}  // namespace weft::standin
