// The pool by itself: blocks are found again, limits hold, foreign pointers, threads and forks do no harm.
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

TEST(BlockPool, FindsABlockAgain) {
  BlockPool pool;
  void* first = pool.take(100'000);
  EXPECT_TRUE(pool.give_back(first));
  void* second = pool.take(99'000);  // of the same capacity
  EXPECT_EQ(first, second);
  EXPECT_EQ(pool.statistics().hits, 1);
  EXPECT_EQ(pool.statistics().misses, 1);
  EXPECT_TRUE(pool.give_back(second));
}

TEST(BlockPool, BlocksAreAlignedAndWritableToTheirEnd) {
  BlockPool pool;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{16'384}, std::size_t{20'001}, kMiB, 3 * kMiB + 1}) {
    void* data = pool.take(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
    std::memset(data, 7, bytes);
    EXPECT_TRUE(pool.give_back(data));
  }
}

TEST(BlockPool, TheLastFreedComesFirst) {
  BlockPool pool;
  void* a = pool.take(kMiB);
  void* b = pool.take(kMiB);
  pool.give_back(a);
  pool.give_back(b);
  EXPECT_EQ(pool.take(kMiB), b) << "it may still be in the caches";
  EXPECT_EQ(pool.take(kMiB), a);
  pool.give_back(a);
  pool.give_back(b);
}

TEST(BlockPool, ForeignPointersAreNotTaken) {
  BlockPool pool;
  int here = 0;
  EXPECT_FALSE(pool.give_back(&here));
  EXPECT_FALSE(pool.give_back(nullptr));
  void* block = pool.take(kMiB);
  EXPECT_FALSE(pool.give_back(static_cast<char*>(block) + 64)) << "the middle of a block";
  EXPECT_TRUE(pool.give_back(block));
  EXPECT_FALSE(pool.give_back(block)) << "twice";
  EXPECT_EQ(pool.statistics().cached_bytes, static_cast<std::int64_t>(kMiB));
  EXPECT_EQ(pool.statistics().live_bytes, 0);
}

TEST(BlockPool, HoldsNoMoreThanItsLimits) {
  BlockPool pool(kTight);
  void* large = pool.take(8 * kMiB);
  pool.give_back(large);
  EXPECT_EQ(pool.statistics().cached_bytes, static_cast<std::int64_t>(8 * kMiB));
  void* small = pool.take(kMiB);  // 9 MiB in all, when 8 were the most in use
  EXPECT_EQ(pool.statistics().cached_bytes, 0);
  EXPECT_EQ(pool.statistics().evictions, 1);
  pool.give_back(small);
}

TEST(BlockPool, GivesUpTheLongestUnusedFirst) {
  BlockPool pool(kTight);
  void* old = pool.take(4 * kMiB);
  void* recent = pool.take(2 * kMiB);
  pool.give_back(old);
  pool.give_back(recent);
  void* other = pool.take(3 * kMiB);
  EXPECT_EQ(pool.statistics().cached_bytes, static_cast<std::int64_t>(2 * kMiB));
  EXPECT_EQ(pool.take(2 * kMiB), recent);
  pool.give_back(recent);
  pool.give_back(other);
}

TEST(BlockPool, LowerLimitsHoldAtOnce) {
  BlockPool pool(Limits{10.0, 0});
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.take(kMiB));
  for (void* block : blocks) pool.give_back(block);
  void* live = pool.take(kMiB);
  pool.trim();  // forgets the peak
  EXPECT_EQ(pool.statistics().peak_bytes, static_cast<std::int64_t>(kMiB));
  EXPECT_EQ(pool.statistics().cached_bytes, 0);
  pool.give_back(live);
  pool.set_limits({1.0, 0});
  EXPECT_EQ(pool.statistics().cached_bytes, static_cast<std::int64_t>(kMiB));
}

TEST(BlockPool, WhatTheSystemHasNotThrowsAndThePoolGoesOn) {
  BlockPool pool;
  void* before = pool.take(kMiB);
  pool.give_back(before);
  EXPECT_THROW(static_cast<void>(pool.take(std::size_t{1} << 60)), std::bad_alloc);
  EXPECT_EQ(pool.statistics().cached_bytes, 0) << "what was free is given back before it gives up";
  void* after = pool.take(kMiB);
  std::memset(after, 1, kMiB);
  pool.give_back(after);
}

TEST(BlockPool, RandomUseKeepsTheBooks) {
  BlockPool pool(Limits{1.25, 1 << 20});
  std::mt19937 random(3);
  std::vector<std::pair<unsigned char*, std::size_t>> live;
  std::int64_t most = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (live.empty() || random() % 2 == 0) {
      const std::size_t bytes = 1 + random() % (200'000);
      auto* data = static_cast<unsigned char*>(pool.take(bytes));
      data[0] = data[bytes - 1] = static_cast<unsigned char>(bytes);
      live.emplace_back(data, bytes);
    } else {
      std::swap(live[random() % live.size()], live.back());
      const auto [data, bytes] = live.back();
      ASSERT_EQ(data[0], static_cast<unsigned char>(bytes));
      ASSERT_EQ(data[bytes - 1], static_cast<unsigned char>(bytes));
      ASSERT_TRUE(pool.give_back(data));
      live.pop_back();
    }
    const Statistics now = pool.statistics();
    most = std::max(most, now.live_bytes);
    ASSERT_LE(now.live_bytes + now.cached_bytes, std::max<std::int64_t>(most * 5 / 4, 1 << 20));
  }
  for (const auto& [data, bytes] : live) pool.give_back(data);
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
        auto* data = static_cast<volatile unsigned char*>(pool.take(bytes));
        data[0] = static_cast<unsigned char>(t);
        data[bytes - 1] = static_cast<unsigned char>(t);
        std::this_thread::yield();
        if (data[0] != t || data[bytes - 1] != t) ADD_FAILURE() << "two threads have the same memory";
        pool.give_back(const_cast<unsigned char*>(data));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(pool.statistics().live_bytes, 0);
}

// A child must not inherit a lock that a thread of the parent held, nor disturb the parent's blocks.
TEST(BlockPool, WorksInAForkedChild) {
  BlockPool& pool = BlockPool::of_process();
  auto* mine = static_cast<unsigned char*>(pool.take(kMiB));
  mine[0] = 5;
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) pool.give_back(pool.take(kMiB));
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      auto* data = static_cast<unsigned char*>(pool.take(2 * kMiB));
      std::memset(data, 1, 2 * kMiB);
      mine[0] = 9;
      _exit(pool.give_back(data) && pool.give_back(mine) ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
  EXPECT_EQ(mine[0], 5);
  EXPECT_TRUE(pool.give_back(mine));
}

}  // namespace
}  // namespace weft::memory
