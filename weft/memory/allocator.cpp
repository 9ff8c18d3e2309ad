#include "weft/memory/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <new>

namespace weft::memory {
namespace {

// Once given to torch it stays there: memory that torch took raw, as oneDNN does, is freed through whatever allocator
// is in place at that moment, so that this one must know its own blocks and the other's apart, for good.
class PooledAllocator final : public c10::Allocator {
 public:
  static PooledAllocator& instance() {
    static auto* const allocator = new PooledAllocator();
    return *allocator;
  }

  void install() {
    if (c10::GetCPUAllocator() == this) return;
    c10::Allocator* const before = c10::GetCPUAllocator();
    TORCH_CHECK(before->raw_deleter() != nullptr,
                "weft: the allocator that torch has been given gives no raw memory, which pooling needs; start pooling "
                "before it is put in place, or not at all");
    base_ = before;
    // Torch replaces an allocator by one of the same or a higher priority only.
    c10::SetCPUAllocator(this, /*priority=*/255);
  }

  void set_on(bool on) noexcept { on_.store(on, std::memory_order_relaxed); }
  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_relaxed); }

  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = on() && bytes >= kSmallestBlock ? pooled(bytes) : base_->raw_allocate(bytes);
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }

 private:
  static void* pooled(std::size_t bytes) {
    try {
      void* const data = BlockPool::of_process().take(bytes);
      c10::profiledCPUMemoryReporter().New(data, bytes);
      return data;
    } catch (const std::bad_alloc&) {
      c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, false, "weft: the memory pool cannot get ", bytes,
                       " bytes from the system, even after giving back all that it held free");
    }
  }

  static void release(void* data) {
    if (data == nullptr) return;
    if (BlockPool::of_process().give_back(data)) {
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
                    "weft: the pool's limits are expected to be at least 1 time the peak and at least 0 bytes, got ",
                    limits.of_peak, " and ", limits.at_least);
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

}  // namespace weft::memory
