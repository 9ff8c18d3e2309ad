#include "weft/memory/block_pool.h"

#include <pthread.h>
#include <torch/library.h>

#include <algorithm>
#include <bit>
#include <new>
#include <tuple>

#include "weft/memory/pages.h"

namespace weft::memory {
namespace {

// Rounds up to a power of two or one of three steps between two powers. This wastes at most a quarter, and requests of
// slightly different sizes share blocks. The wasted pages are never touched and use only address space.
std::size_t capacity_for(std::size_t bytes) {
  const std::size_t step = std::max(std::bit_floor(bytes) / 4, kAlignment);
  return (bytes + step - 1) / step * step;
}

std::int64_t signed_bytes(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("pool_statistics", [] {
    const Statistics s = BlockPool::of_process().statistics();
    return std::tuple(s.live_bytes, s.cached_bytes, s.peak_bytes, s.hits, s.misses, s.evictions);
  });
  m.def("empty_pool", [] { BlockPool::of_process().trim(); });
}

}  // namespace

BlockPool& BlockPool::of_process() {
  static BlockPool* const pool = [] {
    auto* made = new BlockPool();
    made->lock_during_forks();
    return made;
  }();
  return *pool;
}

void* BlockPool::allocate(std::size_t bytes) {
  const std::size_t capacity = capacity_for(bytes);
  if (void* data = reuse(capacity)) return data;
  void* data = allocate_pages(capacity);
  if (data == nullptr) {
    trim();
    data = allocate_pages(capacity);
  }
  if (data == nullptr) throw std::bad_alloc();
  return add_live_block(data, capacity);
}

void* BlockPool::reuse(std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  const auto found = free_.find(capacity);
  if (found == free_.end() || found->second.empty()) {
    ++statistics_.misses;
    // Evicts before allocating; otherwise the pool would briefly exceed its limit.
    statistics_.peak_bytes = std::max(statistics_.peak_bytes, statistics_.live_bytes + signed_bytes(capacity));
    evict(max_bytes() - signed_bytes(capacity));
    return nullptr;
  }
  void* data = found->second.back();
  found->second.pop_back();
  blocks_.find(data)->second.in_use = true;
  statistics_.cached_bytes -= signed_bytes(capacity);
  statistics_.live_bytes += signed_bytes(capacity);
  statistics_.peak_bytes = std::max(statistics_.peak_bytes, statistics_.live_bytes);
  ++statistics_.hits;
  return data;
}

void* BlockPool::add_live_block(void* data, std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  try {
    blocks_.insert_or_assign(data, Block{capacity, 0, true});
  } catch (...) {
    free_pages(data, capacity);
    throw;
  }
  statistics_.live_bytes += signed_bytes(capacity);
  return data;
}

bool BlockPool::deallocate(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(data);
  if (found == blocks_.end() || !found->second.in_use) return false;
  Block& block = found->second;
  const std::size_t capacity = block.capacity;
  statistics_.live_bytes -= signed_bytes(capacity);
  try {
    free_[capacity].push_back(data);
  } catch (...) {  // no memory for the list entry; release the block instead
    blocks_.erase(found);
    free_pages(data, capacity);
    return true;
  }
  block.in_use = false;
  block.freed_at = ++clock_;
  statistics_.cached_bytes += signed_bytes(capacity);
  evict(max_bytes());
  return true;
}

std::int64_t BlockPool::max_bytes() const noexcept {
  const auto of_peak = static_cast<std::int64_t>(limits_.of_peak * static_cast<double>(statistics_.peak_bytes));
  return std::max(of_peak, limits_.at_least);
}

void BlockPool::evict(std::int64_t max) noexcept {
  while (statistics_.live_bytes + statistics_.cached_bytes > max && statistics_.cached_bytes > 0) {
    std::deque<void*>* oldest = nullptr;
    std::uint64_t age = 0;
    for (auto& [capacity, blocks] : free_) {
      if (blocks.empty()) continue;
      const std::uint64_t freed_at = blocks_.find(blocks.front())->second.freed_at;
      if (oldest == nullptr || freed_at < age) {
        oldest = &blocks;
        age = freed_at;
      }
    }
    release_oldest(*oldest);
    ++statistics_.evictions;
  }
}

void BlockPool::release_oldest(std::deque<void*>& blocks) noexcept {
  void* data = blocks.front();
  blocks.pop_front();
  const auto found = blocks_.find(data);
  const std::size_t capacity = found->second.capacity;
  blocks_.erase(found);
  statistics_.cached_bytes -= signed_bytes(capacity);
  free_pages(data, capacity);
}

void BlockPool::trim() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& [capacity, blocks] : free_) {
    while (!blocks.empty()) release_oldest(blocks);
  }
  free_.clear();
  statistics_.peak_bytes = statistics_.live_bytes;
}

void BlockPool::set_limits(Limits limits) noexcept {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
  evict(max_bytes());
}

Limits BlockPool::limits() const {
  const std::lock_guard lock(mutex_);
  return limits_;
}

Statistics BlockPool::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

// Without this, a child could inherit the mutex locked by a thread that does not exist in the child.
void BlockPool::lock_during_forks() {
  pthread_atfork([] { of_process().mutex_.lock(); }, [] { of_process().mutex_.unlock(); },
                 [] { of_process().mutex_.unlock(); });
}

}  // namespace weft::memory
