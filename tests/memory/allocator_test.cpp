// The pooled allocator of torch: reuse, switching it on and off, and raw memory.
#include "weft/memory/allocator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace weft::memory {
namespace {

using at::Tensor;

constexpr std::int64_t kFloats = 1 << 18;

class Pooling : public testing::Test {
 protected:
  void SetUp() override { start_pooling(); }
  void TearDown() override { stop_pooling(); }
};

Statistics now() { return BlockPool::of_process().statistics(); }

TEST_F(Pooling, ReusesMemory) {
  const void* first = at::empty({kFloats}, at::kFloat).const_data_ptr();
  const auto before = now();
  const void* second = at::empty({kFloats}, at::kFloat).const_data_ptr();
  EXPECT_EQ(first, second);
  EXPECT_EQ(now().hits - before.hits, 1);
  EXPECT_EQ(now().misses, before.misses);
}

TEST_F(Pooling, IgnoresSmallTensors) {
  const auto before = now();
  for (int i = 0; i < 100; ++i) static_cast<void>(at::full({16}, 1.0));
  static_cast<void>(at::empty({0}));
  EXPECT_EQ(now().hits + now().misses, before.hits + before.misses);
}

TEST_F(Pooling, TensorsSurviveSwitching) {
  stop_pooling();
  Tensor from_before = at::full({kFloats}, 3.0);
  start_pooling();
  Tensor from_pool = at::full({kFloats}, 4.0);
  const auto live = now().live_bytes;
  EXPECT_TRUE(from_before.eq(3).all().item<bool>());
  from_before.reset();
  EXPECT_EQ(now().live_bytes, live) << "freed by torch's allocator";
  stop_pooling();
  EXPECT_TRUE(from_pool.eq(4).all().item<bool>());
  from_pool.reset();
  EXPECT_LT(now().live_bytes, live);
}

// oneDNN allocates and frees through the allocator that is installed at that moment.
TEST_F(Pooling, FreesRawMemoryWithItsOwnAllocator) {
  const auto before = now().live_bytes;
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{1} << 20}) {
    void* pooled = c10::GetCPUAllocator()->raw_allocate(bytes);
    stop_pooling();
    void* plain = c10::GetCPUAllocator()->raw_allocate(bytes);
    c10::GetCPUAllocator()->raw_deallocate(pooled);
    start_pooling();
    c10::GetCPUAllocator()->raw_deallocate(plain);
    void* from_torch = c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
    c10::GetCPUAllocator()->raw_deallocate(from_torch);
  }
  c10::GetCPUAllocator()->raw_deallocate(nullptr);
  EXPECT_EQ(now().live_bytes, before);
}

TEST_F(Pooling, ResizingPreservesValues) {
  const Tensor x = at::arange(kFloats);
  x.resize_({4 * kFloats});
  EXPECT_TRUE(x.narrow(0, 0, kFloats).equal(at::arange(kFloats)));
}

TEST_F(Pooling, ConvolutionIsIdenticalAndReusesMemory) {
  const Tensor x = at::randn({4, 8, 32, 32});
  const Tensor weight = at::randn({16, 8, 3, 3});
  stop_pooling();
  const Tensor expected = at::conv2d(x, weight);
  start_pooling();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::conv2d(x, weight).equal(expected));
  const auto before = now();
  EXPECT_TRUE(at::conv2d(x, weight).equal(expected));
  EXPECT_EQ(now().misses, before.misses);
  EXPECT_GT(now().hits, before.hits);
}

TEST_F(Pooling, ThreadsMayFreeTensorsOfOtherThreads) {
  const auto before = now().live_bytes;
  std::vector<Tensor> made(8);
  std::vector<std::thread> makers;
  for (std::size_t t = 0; t < made.size(); ++t) {
    makers.emplace_back([t, &made] {
      for (int i = 0; i < 50; ++i) made[t] = at::full({kFloats / 8}, static_cast<double>(t));
    });
  }
  for (auto& maker : makers) maker.join();
  for (std::size_t t = 0; t < made.size(); ++t) {
    EXPECT_TRUE(made[t].eq(static_cast<double>(t)).all().item<bool>());
  }
  std::thread([&made] { made.clear(); }).join();
  EXPECT_EQ(now().live_bytes, before);
}

TEST_F(Pooling, OutOfMemoryIsAnErrorAndTorchStaysUsable) {
  try {
    static_cast<void>(at::empty({std::int64_t{1} << 58}, at::kByte));
    FAIL() << "expected an exception";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the memory pool cannot allocate"));
  }
  EXPECT_TRUE(at::full({kFloats}, 1.0).eq(1).all().item<bool>());
}

TEST_F(Pooling, RejectsInvalidLimits) {
  EXPECT_THROW(start_pooling({0.5, 0}), c10::Error);
  EXPECT_THROW(start_pooling({2, -1}), c10::Error);
  EXPECT_TRUE(is_pooling());
}

TEST_F(Pooling, ReportsItsState) {
  EXPECT_TRUE(is_pooling());
  stop_pooling();
  EXPECT_FALSE(is_pooling());
  EXPECT_EQ(now().cached_bytes, 0);
}

}  // namespace
}  // namespace weft::memory
