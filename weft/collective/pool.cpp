#include "weft/collective/pool.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>

#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <vector>

namespace weft::collective {
namespace {

constexpr std::size_t kSmallest = std::size_t{16} << 10;
constexpr std::size_t kMostCached = std::size_t{1} << 30;
constexpr std::size_t kAlignment = 64;

struct Block {
  void* data;
  std::size_t capacity;
};

// Capacities are powers of two and the three steps between: at most a quarter is wasted, and sizes that vary a
// little from call to call still meet again.
std::size_t capacity_for(std::size_t bytes) {
  const std::size_t step = std::max(std::bit_floor(bytes) / 4, kAlignment);
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  static Pool& instance() {
    static auto* pool = new Pool();  // tensors may die after static destruction
    return *pool;
  }

  Block* take(std::size_t bytes) {
    const std::size_t capacity = capacity_for(bytes);
    {
      const std::lock_guard lock(mutex_);
      auto& blocks = free_[capacity];
      statistics_.live_bytes += static_cast<std::int64_t>(capacity);
      if (!blocks.empty()) {
        Block* block = blocks.back();
        blocks.pop_back();
        statistics_.cached_bytes -= static_cast<std::int64_t>(capacity);
        ++statistics_.hits;
        return block;
      }
      ++statistics_.misses;
    }
    void* data = std::aligned_alloc(kAlignment, capacity);
    if (data == nullptr) throw std::bad_alloc();
    return new Block{data, capacity};
  }

  void give_back(Block* block) {
    {
      const std::lock_guard lock(mutex_);
      const auto bytes = static_cast<std::int64_t>(block->capacity);
      statistics_.live_bytes -= bytes;
      if (static_cast<std::size_t>(statistics_.cached_bytes) + block->capacity <= kMostCached) {
        statistics_.cached_bytes += bytes;
        free_[block->capacity].push_back(block);
        return;
      }
    }
    destroy(block);
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    for (auto& [capacity, blocks] : free_) {
      for (Block* block : blocks) destroy(block);
    }
    free_.clear();
    statistics_.cached_bytes = 0;
  }

  PoolStatistics statistics() {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }

 private:
  static void destroy(Block* block) {
    std::free(block->data);
    delete block;
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<Block*>> free_;
  PoolStatistics statistics_;
};

}  // namespace

at::Tensor pooled_empty(at::IntArrayRef sizes, at::ScalarType type) {
  const auto options = at::TensorOptions().dtype(type).device(at::kCPU);
  const std::size_t bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  if (bytes < kSmallest) return at::detail::empty_cpu(sizes, type);
  Block* block = Pool::instance().take(bytes);
  c10::DataPtr data(
      block->data, block, [](void* context) { Pool::instance().give_back(static_cast<Block*>(context)); }, at::kCPU);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), c10::GetCPUAllocator(),
                       /*resizable=*/true);
  auto tensor = at::detail::make_tensor<at::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                        options.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

PoolStatistics pool_statistics() { return Pool::instance().statistics(); }

void empty_pool() { Pool::instance().clear(); }

}  // namespace weft::collective
