// Pooled results: memory is reused, survives an emptied pool, and does not grow.
#include "weft/collective/pool.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <thread>

#include "tests/collective/single_process.h"

namespace weft::collective {
namespace {

constexpr std::int64_t kFloats = 1 << 16;  // 256 KiB
constexpr std::int64_t kBytes = kFloats * 4;

memory::Statistics pool_statistics() { return memory::BlockPool::of_process().statistics(); }
void empty_pool() { memory::BlockPool::of_process().trim(); }

class Pool : public testing::Test {
 protected:
  void SetUp() override { empty_pool(); }
};

TEST_F(Pool, PooledTensorsBehaveLikeOthers) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 2}, Shape{7}, Shape{300, 50}}) {
    const Tensor x = pooled_empty(shape, at::kDouble);
    EXPECT_EQ(x.sizes(), at::IntArrayRef(shape));
    EXPECT_TRUE(x.is_contiguous());
    EXPECT_TRUE(x.device().is_cpu());
    EXPECT_FALSE(x.requires_grad());
    expect_close(x.fill_(2), at::full(shape, 2.0, at::kDouble));
  }
}

TEST_F(Pool, MemoryIsAligned) {
  for (const std::int64_t bytes : {16'384, 16'385, 20'001, 100'003, 1'000'003}) {
    const Tensor x = pooled_empty({bytes}, at::kByte);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 64, 0U) << bytes;
    x.fill_(1);  // touches every byte for AddressSanitizer
  }
}

TEST_F(Pool, MemoryIsReused) {
  const auto before = pool_statistics();
  const void* first = pooled_empty({kFloats}, at::kFloat).const_data_ptr();
  const void* second = pooled_empty({kFloats}, at::kFloat).const_data_ptr();
  EXPECT_EQ(first, second);
  const void* other_type = pooled_empty({kFloats / 2}, at::kDouble).const_data_ptr();
  EXPECT_EQ(first, other_type);
  const auto after = pool_statistics();
  EXPECT_EQ(after.misses - before.misses, 1);
  EXPECT_EQ(after.hits - before.hits, 2);
}

TEST_F(Pool, MemoryInUseIsNotReused) {
  const Tensor a = pooled_empty({kFloats}, at::kFloat).fill_(1);
  const Tensor part = a.narrow(0, 5, 10);
  const Tensor b = pooled_empty({kFloats}, at::kFloat).fill_(2);
  EXPECT_TRUE(part.eq(1).all().item<bool>());
  EXPECT_TRUE(b.eq(2).all().item<bool>());
}

TEST_F(Pool, ViewsKeepTheMemory) {
  Tensor part;
  {
    const Tensor whole = pooled_empty({kFloats}, at::kFloat).fill_(3);
    part = whole.narrow(0, 5, 10);
  }
  const Tensor other = pooled_empty({kFloats}, at::kFloat).fill_(4);
  EXPECT_TRUE(part.eq(3).all().item<bool>());
}

TEST_F(Pool, StatisticsAddUp) {
  const auto before = pool_statistics();
  EXPECT_EQ(before.cached_bytes, 0);
  {
    const Tensor x = pooled_empty({kFloats}, at::kFloat);
    const Tensor small = pooled_empty({16}, at::kFloat);  // too small for the pool
    EXPECT_EQ(pool_statistics().live_bytes - before.live_bytes, kBytes);
    EXPECT_EQ(pool_statistics().cached_bytes, 0);
  }
  EXPECT_EQ(pool_statistics().live_bytes, before.live_bytes);
  EXPECT_EQ(pool_statistics().cached_bytes, kBytes);
  empty_pool();
  EXPECT_EQ(pool_statistics().cached_bytes, 0);
}

TEST_F(Pool, TensorsSurviveAnEmptiedPool) {
  const Tensor x = pooled_empty({kFloats}, at::kFloat).fill_(5);
  empty_pool();
  EXPECT_TRUE(x.eq(5).all().item<bool>());
}

TEST_F(Pool, WasteIsAtMostAQuarter) {
  const auto before = pool_statistics().live_bytes;
  for (std::int64_t bytes = 16'384; bytes < 2'000'000; bytes = bytes * 9 / 8 + 1) {
    const Tensor x = pooled_empty({bytes}, at::kByte);
    const auto taken = pool_statistics().live_bytes - before;
    EXPECT_GE(taken, bytes);
    EXPECT_LE(taken, bytes + bytes / 4 + 64);
  }
}

TEST_F(Pool, ResizedTensorsLeaveThePool) {
  const Tensor x = pooled_empty({kFloats}, at::kFloat).fill_(6);
  x.resize_({4 * kFloats});
  x.narrow(0, kFloats, 3 * kFloats).fill_(7);
  EXPECT_TRUE(x.narrow(0, 0, kFloats).eq(6).all().item<bool>()) << "resizing keeps the values";
  EXPECT_EQ(pool_statistics().cached_bytes, kBytes);
}

TEST_F(Pool, ThreadsShareThePool) {
  const auto before = pool_statistics().live_bytes;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) {
        const Tensor x = pooled_empty({16'384 + 64 * (i % 7)}, at::kByte);
        auto* data = x.mutable_data_ptr<std::uint8_t>();
        data[0] = data[x.numel() - 1] = static_cast<std::uint8_t>(t);
        if (data[0] != t || data[x.numel() - 1] != t) ADD_FAILURE() << "two threads have the same memory";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(pool_statistics().live_bytes, before);
}

// Operations

void pass(const Tensor& x) {
  const Tensor y = all_reduce(x, comm());
  backward((y * y).sum());
}

TEST_F(Pool, OperationsReuseMemory) {
  const Tensor x = leaf(values({kFloats}, rank(), at::kFloat));
  for (int i = 0; i < 3; ++i) pass(x);
  const auto before = pool_statistics();
  for (int i = 0; i < 10; ++i) pass(x);
  const auto after = pool_statistics();
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_GE(after.hits - before.hits, 20) << "forward and backward";
  EXPECT_EQ(after.live_bytes, before.live_bytes);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kPasses = 500;
constexpr bool kMeasures = false;  // sanitizers delay the reuse of freed memory
#else
constexpr int kPasses = 10'000;
constexpr bool kMeasures = true;
#endif

std::int64_t resident_bytes() {
  std::int64_t total = 0;
  std::int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// A leak grows in most intervals (the first may use free memory); malloc's arenas grow by megabytes once, at any time.
void expect_no_growth(const std::function<void()>& pass, int passes) {
  for (int i = 0; i < passes / 10; ++i) pass();
  std::array<std::int64_t, 5> grown{};
  for (std::int64_t& stretch : grown) {
    const std::int64_t before = resident_bytes();
    for (int i = 0; i < passes / 5; ++i) pass();
    stretch = resident_bytes() - before;
  }
  std::ranges::sort(grown);
  EXPECT_TRUE(!kMeasures || grown[2] <= (std::int64_t{1} << 18)) << testing::PrintToString(grown);
}

TEST_F(Pool, ManySmallPassesDoNotGrowMemory) {
  const Tensor x = leaf(values({100}, rank(), at::kFloat));
  expect_no_growth([&] { pass(x); }, kPasses);
}

TEST_F(Pool, ManyLargePassesDoNotGrowMemory) {
  const Tensor x = leaf(values({kFloats}, rank(), at::kFloat));
  expect_no_growth([&] { pass(x); }, kPasses / 20);
}

TEST_F(Pool, MessagesAndRequestsDoNotGrowMemory) {
  const Tensor x = leaf(values({2000}, rank(), at::kFloat));
  expect_no_growth(
      [&] {
        const auto pending = iall_reduce(x, comm());
        const Tensor y = sendrecv(x, comm(), next(), previous());
        const auto dropped = iall_reduce(x.detach(), comm());
        backward((wait(pending) * y).sum());
      },
      kPasses / 10);
}

TEST_F(Pool, SecondDerivativesDoNotGrowMemory) {
  const Tensor x = leaf(values({2000}, rank(), at::kFloat));
  expect_no_growth(
      [&] {
        const Tensor y = all_reduce(x, comm(), mpi::ReduceOp::kProd);
        const Tensor g = grad((y * y).sum(), {x}, {}, true, /*create_graph=*/true)[0];
        backward(g.sum());
      },
      kPasses / 20);
}

}  // namespace
}  // namespace weft::collective
