#include "weft/collective/pool.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>

#include <new>

namespace weft::collective {

at::Tensor pooled_empty(at::IntArrayRef sizes, at::ScalarType type) {
  const auto options = at::TensorOptions().dtype(type).device(at::kCPU);
  const std::size_t bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  if (bytes < memory::kSmallestBlock) return at::detail::empty_cpu(sizes, type);
  void* const block = [&] {
    try {
      return memory::BlockPool::of_process().allocate(bytes);
    } catch (const std::bad_alloc&) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "weft: not enough memory to allocate ", bytes, " bytes");
    }
  }();
  c10::DataPtr data(block, block, [](void* taken) { memory::BlockPool::of_process().deallocate(taken); }, at::kCPU);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), c10::GetCPUAllocator(),
                       /*resizable=*/true);
  auto tensor = at::detail::make_tensor<at::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                        options.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

}  // namespace weft::collective
