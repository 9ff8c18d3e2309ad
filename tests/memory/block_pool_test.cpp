// The block pool: reuse, limits, foreign pointers, threads and forks.
#include "weft/memory/block_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <thread>
#include <vector>

namespace weft::memory {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr Limits kTight{1.0, 0};

TEST(BlockPool, ReusesABlock) {
  BlockPool pool;
  void* first = pool.allocate(100'000);
  EXPECT_TRUE(pool.deallocate(first));
  void* second = pool.allocate(99'000);  // same capacity
  EXPECT_EQ(first, second);
  EXPECT_EQ(pool.statistics().hits, 1);
  EXPECT_EQ(pool.statistics().misses, 1);
  EXPECT_TRUE(pool.deallocate(second));
}

TEST(BlockPool, BlocksAreAlignedAndWritable) {
  BlockPool pool;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{16'384}, std::size_t{20'001}, kMiB, 3 * kMiB + 1}) {
    void* data = pool.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
    std::memset(data, 7, bytes);
    EXPECT_TRUE(pool.deallocate(data));
  }
}

TEST(BlockPool, ReusesTheMostRecentlyFreedBlock) {
  BlockPool pool;
  void* a = pool.allocate(kMiB);
  void* b = pool.allocate(kMiB);
  pool.deallocate(a);
  pool.deallocate(b);
  EXPECT_EQ(pool.allocate(kMiB), b) << "likely still in the CPU cache";
  EXPECT_EQ(pool.allocate(kMiB), a);
  pool.deallocate(a);
  pool.deallocate(b);
}

TEST(BlockPool, IgnoresForeignPointers) {
  BlockPool pool;
  int here = 0;
  EXPECT_FALSE(pool.deallocate(&here));
  EXPECT_FALSE(pool.deallocate(nullptr));
  void* block = pool.allocate(kMiB);
  EXPECT_FALSE(pool.deallocate(static_cast<char*>(block) + 64)) << "inside a block";
  EXPECT_TRUE(pool.deallocate(block));
  EXPECT_FALSE(pool.deallocate(block)) << "double free";
  EXPECT_EQ(pool.statistics().cached_bytes, static_cast<std::int64_t>(kMiB));
  EXPECT_EQ(pool.statistics().live_bytes, 0);
}

TEST(BlockPool, RespectsItsLimits) {
  BlockPool pool(kTight);
  void* large = pool.allocate(8 * kMiB);
  pool.deallocate(large);
  EXPECT_EQ(pool.statistics().cached_bytes, static_cast<std::int64_t>(8 * kMiB));
  void* small = pool.allocate(kMiB);  // 9 MiB in total exceed the peak of 8 MiB
  EXPECT_EQ(pool.statistics().cached_bytes, 0);
  EXPECT_EQ(pool.statistics().evictions, 1);
  pool.deallocate(small);
}

TEST(BlockPool, EvictsLeastRecentlyUsedBlocksFirst) {
  BlockPool pool(kTight);
  void* old = pool.allocate(4 * kMiB);
  void* recent = pool.allocate(2 * kMiB);
  pool.deallocate(old);
  pool.deallocate(recent);
  void* other = pool.allocate(3 * kMiB);
  EXPECT_EQ(pool.statistics().cached_bytes, static_cast<std::int64_t>(2 * kMiB));
  EXPECT_EQ(pool.allocate(2 * kMiB), recent);
  pool.deallocate(recent);
  pool.deallocate(other);
}

TEST(BlockPool, AppliesLowerLimitsImmediately) {
  BlockPool pool(Limits{10.0, 0});
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.allocate(kMiB));
  for (void* block : blocks) pool.deallocate(block);
  void* live = pool.allocate(kMiB);
  pool.trim();  // resets the peak
  EXPECT_EQ(pool.statistics().peak_bytes, static_cast<std::int64_t>(kMiB));
  EXPECT_EQ(pool.statistics().cached_bytes, 0);
  pool.deallocate(live);
  pool.set_limits({1.0, 0});
  EXPECT_EQ(pool.statistics().cached_bytes, static_cast<std::int64_t>(kMiB));
}

TEST(BlockPool, ThrowsWithoutMemoryAndStaysUsable) {
  BlockPool pool;
  void* before = pool.allocate(kMiB);
  pool.deallocate(before);
  EXPECT_THROW(static_cast<void>(pool.allocate(std::size_t{1} << 60)), std::bad_alloc);
  EXPECT_EQ(pool.statistics().cached_bytes, 0) << "free blocks are released before it throws";
  void* after = pool.allocate(kMiB);
  std::memset(after, 1, kMiB);
  pool.deallocate(after);
}

TEST(BlockPool, StatisticsAreConsistentUnderRandomUse) {
  BlockPool pool(Limits{1.25, 1 << 20});
  std::mt19937 random(3);
  std::vector<std::pair<unsigned char*, std::size_t>> live;
  std::int64_t most = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (live.empty() || random() % 2 == 0) {
      const std::size_t bytes = 1 + random() % (200'000);
      auto* data = static_cast<unsigned char*>(pool.allocate(bytes));
      data[0] = data[bytes - 1] = static_cast<unsigned char>(bytes);
      live.emplace_back(data, bytes);
    } else {
      std::swap(live[random() % live.size()], live.back());
      const auto [data, bytes] = live.back();
      ASSERT_EQ(data[0], static_cast<unsigned char>(bytes));
      ASSERT_EQ(data[bytes - 1], static_cast<unsigned char>(bytes));
      ASSERT_TRUE(pool.deallocate(data));
      live.pop_back();
    }
    const Statistics now = pool.statistics();
    most = std::max(most, now.live_bytes);
    ASSERT_LE(now.live_bytes + now.cached_bytes, std::max<std::int64_t>(most * 5 / 4, 1 << 20));
  }
  for (const auto& [data, bytes] : live) pool.deallocate(data);
  EXPECT_EQ(pool.statistics().live_bytes, 0);
  EXPECT_GE(pool.statistics().hits + pool.statistics().misses, 9'000);
}

TEST(BlockPool, ThreadsDoNotShareBlocks) {
  BlockPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &pool] {
      for (int i = 0; i < 2'000; ++i) {
        const std::size_t bytes = 16'384U + 64U * static_cast<std::size_t>(i % 7);
        auto* data = static_cast<volatile unsigned char*>(pool.allocate(bytes));
        data[0] = static_cast<unsigned char>(t);
        data[bytes - 1] = static_cast<unsigned char>(t);
        std::this_thread::yield();
        if (data[0] != t || data[bytes - 1] != t) ADD_FAILURE() << "two threads share a block";
        pool.deallocate(const_cast<unsigned char*>(data));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(pool.statistics().live_bytes, 0);
}

// A child must not inherit a locked mutex or modify the parent's blocks.
TEST(BlockPool, WorksInAForkedChild) {
  BlockPool& pool = BlockPool::of_process();
  auto* mine = static_cast<unsigned char*>(pool.allocate(kMiB));
  mine[0] = 5;
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) pool.deallocate(pool.allocate(kMiB));
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      auto* data = static_cast<unsigned char*>(pool.allocate(2 * kMiB));
      std::memset(data, 1, 2 * kMiB);
      mine[0] = 9;
      _exit(pool.deallocate(data) && pool.deallocate(mine) ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
  EXPECT_EQ(mine[0], 5);
  EXPECT_TRUE(pool.deallocate(mine));
}

}  // namespace
}  // namespace weft::memory
