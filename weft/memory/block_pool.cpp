#include "weft/memory/block_pool.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <new>

#include "weft/memory/pages.h"

namespace weft::memory {
namespace {

// Capacities are powers of two and the three steps between: at most a quarter is wasted, and sizes that vary a little
// from call to call still meet again. Pages of the waste are never touched, so that they cost addresses only.
std::size_t capacity_for(std::size_t bytes) {
  const std::size_t step = std::max(std::bit_floor(bytes) / 4, kAlignment);
  return (bytes + step - 1) / step * step;
}

std::int64_t signed_bytes(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

}  // namespace

BlockPool& BlockPool::of_process() {
  static BlockPool* const pool = [] {
    auto* made = new BlockPool();
    made->hold_during_forks();
    return made;
  }();
  return *pool;
}

void* BlockPool::take(std::size_t bytes) {
  const std::size_t capacity = capacity_for(bytes);
  if (void* data = reuse(capacity)) return data;
  void* data = allocate_pages(capacity);
  if (data == nullptr) {
    trim();
    data = allocate_pages(capacity);
  }
  if (data == nullptr) throw std::bad_alloc();
  return remember(data, capacity);
}

void* BlockPool::reuse(std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  const auto found = free_.find(capacity);
  if (found == free_.end() || found->second.empty()) {
    ++statistics_.misses;
    // Room is made first, or old and new memory would be held at once.
    statistics_.peak_bytes = std::max(statistics_.peak_bytes, statistics_.live_bytes + signed_bytes(capacity));
    evict(most_held() - signed_bytes(capacity));
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

void* BlockPool::remember(void* data, std::size_t capacity) {
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

bool BlockPool::give_back(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(data);
  if (found == blocks_.end() || !found->second.in_use) return false;
  Block& block = found->second;
  const std::size_t capacity = block.capacity;
  statistics_.live_bytes -= signed_bytes(capacity);
  try {
    free_[capacity].push_back(data);
  } catch (...) {  // no memory for the list: then this block is what the system needs
    blocks_.erase(found);
    free_pages(data, capacity);
    return true;
  }
  block.in_use = false;
  block.freed_at = ++clock_;
  statistics_.cached_bytes += signed_bytes(capacity);
  evict(most_held());
  return true;
}

std::int64_t BlockPool::most_held() const noexcept {
  const auto of_peak = static_cast<std::int64_t>(limits_.of_peak * static_cast<double>(statistics_.peak_bytes));
  return std::max(of_peak, limits_.at_least);
}

void BlockPool::evict(std::int64_t most) noexcept {
  while (statistics_.live_bytes + statistics_.cached_bytes > most && statistics_.cached_bytes > 0) {
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
    give_to_system(*oldest);
    ++statistics_.evictions;
  }
}

void BlockPool::give_to_system(std::deque<void*>& blocks) noexcept {
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
    while (!blocks.empty()) give_to_system(blocks);
  }
  free_.clear();
  statistics_.peak_bytes = statistics_.live_bytes;
}

void BlockPool::set_limits(Limits limits) noexcept {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
  evict(most_held());
}

Limits BlockPool::limits() const {
  const std::lock_guard lock(mutex_);
  return limits_;
}

Statistics BlockPool::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

// A thread that the child does not have could hold the lock at the moment of the fork.
void BlockPool::hold_during_forks() {
  pthread_atfork([] { of_process().mutex_.lock(); }, [] { of_process().mutex_.unlock(); },
                 [] { of_process().mutex_.unlock(); });
}

}  // namespace weft::memory
