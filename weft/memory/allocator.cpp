#include "weft/memory/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <atomic>
#include <new>

namespace weft::memory {
namespace {

// The allocator stays installed once torch has it: raw memory, as used by oneDNN, is freed through the allocator that
// is installed at that moment. This allocator therefore has to distinguish its own blocks from foreign ones until the
// process ends.
class PooledAllocator final : public c10::Allocator {
 public:
  static PooledAllocator& instance() {
    static auto* const allocator = new PooledAllocator();
    return *allocator;
  }

  void install() {
    if (c10::GetCPUAllocator() == this) return;
    c10::Allocator* const previous = c10::GetCPUAllocator();
    TORCH_CHECK(
        previous->raw_deleter() != nullptr,
        "weft: pooling requires raw allocation, which the installed CPU allocator does not support; start pooling "
        "before installing that allocator");
    base_ = previous;
    // Torch replaces an allocator only by one of the same or a higher priority.
    c10::SetCPUAllocator(this, /*priority=*/255);
  }

  void set_on(bool on) noexcept { on_.store(on, std::memory_order_relaxed); }
  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_relaxed); }

  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = on() && bytes >= kSmallestBlock ? allocate_pooled(bytes) : base_->raw_allocate(bytes);
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }

 private:
  static void* allocate_pooled(std::size_t bytes) {
    try {
      void* const data = BlockPool::of_process().allocate(bytes);
      c10::profiledCPUMemoryReporter().New(data, bytes);
      return data;
    } catch (const std::bad_alloc&) {
      c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, false, "weft: the memory pool cannot allocate ", bytes,
                       " bytes, even after releasing all free blocks");
    }
  }

  static void release(void* data) {
    if (data == nullptr) return;
    if (BlockPool::of_process().deallocate(data)) {
      c10::profiledCPUMemoryReporter().Delete(data);
    } else {
      instance().base_->raw_deallocate(data);
    }
  }

  c10::Allocator* base_ = nullptr;
  std::atomic<bool> on_ = false;
};

}  // namespace

void start_pooling(Limits limits) {
  TORCH_CHECK_VALUE(limits.of_peak >= 1 && limits.at_least >= 0,
                    "weft: invalid pool limits: of_peak must be at least 1 (got ", limits.of_peak,
                    "), at_least must be at least 0 (got ", limits.at_least, ")");
  BlockPool::of_process().set_limits(limits);
  PooledAllocator::instance().install();
  PooledAllocator::instance().set_on(true);
}

void stop_pooling() {
  PooledAllocator::instance().set_on(false);
  BlockPool::of_process().trim();
}

bool is_pooling() noexcept {
  return PooledAllocator::instance().on() && c10::GetCPUAllocator() == &PooledAllocator::instance();
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("start_pooling", [](double of_peak, std::int64_t at_least) { start_pooling({of_peak, at_least}); });
  m.def("stop_pooling", &stop_pooling);
  m.def("is_pooling", [] { return is_pooling(); });
}

}  // namespace weft::memory
