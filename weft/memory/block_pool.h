// Blocks of host memory that are used again: fresh pages cost more than most of what fills them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

namespace weft::memory {

// How much the pool may hold, in use and free together: `of_peak` times the most that was ever in use at once, or
// `at_least` bytes where that is more. What exceeds it is given back to the system, the longest unused first.
struct Limits {
  double of_peak = 1.25;
  std::int64_t at_least = std::int64_t{256} << 20;
};

struct Statistics {
  std::int64_t live_bytes = 0;    // in use
  std::int64_t cached_bytes = 0;  // waiting to be used again
  std::int64_t peak_bytes = 0;    // most that was in use at once since the last trim()
  std::int64_t hits = 0;          // requests that found a block
  std::int64_t misses = 0;        // those that went to the system
  std::int64_t evictions = 0;     // blocks given back because of the limits
};

// Requests below this are not worth a pool: malloc finds them again by itself.
inline constexpr std::size_t kSmallestBlock = std::size_t{16} << 10;

// Thread-safe, and usable in the child after a fork.
class BlockPool {
 public:
  // The one that all of the process shares. It is never destroyed: tensors may die after static objects.
  [[nodiscard]] static BlockPool& of_process();

  BlockPool() = default;
  explicit BlockPool(Limits limits) : limits_(limits) {}
  // Gives back what is free; blocks that are still in use stay valid and are nobody's.
  ~BlockPool() { trim(); }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Uninitialised, aligned to 64 bytes. Throws std::bad_alloc when the system has none even after a trim().
  [[nodiscard]] void* take(std::size_t bytes);
  // False where `data` is not a block of this pool in use; nothing happens then.
  bool give_back(void* data) noexcept;

  // Gives all free blocks back to the system, and forgets the peak.
  void trim() noexcept;
  void set_limits(Limits limits) noexcept;
  [[nodiscard]] Limits limits() const;
  [[nodiscard]] Statistics statistics() const;

 private:
  struct Block {
    std::size_t capacity;
    std::uint64_t freed_at;
    bool in_use;
  };
  using Blocks = std::unordered_map<void*, Block>;

  void* reuse(std::size_t capacity);
  void* remember(void* data, std::size_t capacity);
  [[nodiscard]] std::int64_t most_held() const noexcept;
  void evict(std::int64_t most) noexcept;
  void give_to_system(std::deque<void*>& blocks) noexcept;
  void hold_during_forks();

  mutable std::mutex mutex_;
  Limits limits_;
  Statistics statistics_;
  Blocks blocks_;                                  // all of them, by address
  std::map<std::size_t, std::deque<void*>> free_;  // by capacity, the longest unused first
  std::uint64_t clock_ = 0;                        // counts what was freed
};

}  // namespace weft::memory
