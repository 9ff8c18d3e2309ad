// A pool of reusable host memory blocks: page faults on fresh memory often cost more than the computation that fills
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

namespace weft::memory {

// Bounds the total size of the pool, live and free blocks together: max(of_peak * peak, at_least) bytes, where peak is
// the maximum of live bytes. The pool evicts excess free blocks in least-recently-used order.
struct Limits {
  double of_peak = 1.25;
  std::int64_t at_least = std::int64_t{256} << 20;
};

struct Statistics {
  std::int64_t live_bytes = 0;    // bytes of blocks in use
  std::int64_t cached_bytes = 0;  // free, available for reuse
  std::int64_t peak_bytes = 0;    // maximum of live_bytes since the last trim()
  std::int64_t hits = 0;          // requests served by a free block
  std::int64_t misses = 0;        // requests that allocated from the system
  std::int64_t evictions = 0;     // blocks released because of the limits
};

// Smaller requests do not benefit from pooling: malloc reuses their memory.
inline constexpr std::size_t kSmallestBlock = std::size_t{16} << 10;

// Thread-safe, and usable in a child process after fork().
class BlockPool {
 public:
  // The process-wide pool. It is never destroyed, since tensors may outlive static objects.
  [[nodiscard]] static BlockPool& of_process();

  BlockPool() = default;
  explicit BlockPool(Limits limits) : limits_(limits) {}
  // Releases the free blocks. Live blocks stay valid and are leaked.
  ~BlockPool() { trim(); }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Returns uninitialized memory, aligned to 64 bytes. Throws std::bad_alloc if the system has no memory left
  // even after a trim().
  [[nodiscard]] void* allocate(std::size_t bytes);
  // Returns a block to the pool. Returns false, without effect, if `data` is not a live block of this pool.
  bool deallocate(void* data) noexcept;

  // Releases all free blocks to the system and resets the peak to the live bytes.
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
  void* add_live_block(void* data, std::size_t capacity);
  [[nodiscard]] std::int64_t max_bytes() const noexcept;
  void evict(std::int64_t max) noexcept;
  void release_oldest(std::deque<void*>& blocks) noexcept;
  void lock_during_forks();

  mutable std::mutex mutex_;
  Limits limits_;
  Statistics statistics_;
  Blocks blocks_;                                  // live and free, by address
  std::map<std::size_t, std::deque<void*>> free_;  // by capacity, least recently used first
  std::uint64_t clock_ = 0;                        // number of deallocations
};

}  // namespace weft::memory
