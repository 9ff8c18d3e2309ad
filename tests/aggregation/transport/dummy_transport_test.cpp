// A worker on the dummy transport.
#include "weft/aggregation/transport/dummy_transport.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "weft/aggregation/worker/error.h"
#include "weft/aggregation/worker/worker_session.h"

namespace weft::aggregation {
namespace {

using numeric::BFloat16;

WorkerSession open_session(Mode mode, const DummyOptions& options) {
  WorkerOptions worker;
  worker.mode = mode;
  worker.rank = options.workers - 1;
  worker.workers = options.workers;
  worker.window = 16;
  return WorkerSession(std::make_unique<DummyTransport>(options), worker, {.epoch = 1, .job = 1, .slots = 16});
}

class Modes : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Both, Modes, testing::Values(Mode::kSwitchMl, Mode::kExtended));

TEST_P(Modes, MultipliesByTheNumberOfWorkers) {
  WorkerSession session = open_session(GetParam(), {.workers = 3});
  for (const std::size_t length : {0UL, 1UL, 257UL, 100'000UL}) {
    std::vector<std::int32_t> integers(length);
    std::vector<float> floats(length);
    std::vector<BFloat16> halves(length);
    for (std::size_t i = 0; i < length; ++i) {
      integers[i] = static_cast<std::int32_t>(i) - 50'000;
      floats[i] = static_cast<float>(integers[i]) / 1024;
      halves[i] = BFloat16::from_float(static_cast<float>(i % 32));
    }
    session.all_reduce(integers, integers);
    session.all_reduce(std::span<const float>(floats), std::span(floats));
    session.all_reduce(std::span<const BFloat16>(halves), std::span(halves));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < length; ++i) {
      const std::int32_t three_times = 3 * (static_cast<std::int32_t>(i) - 50'000);
      wrong += integers[i] != three_times || floats[i] != static_cast<float>(three_times) / 1024 ||
               halves[i].to_float() != static_cast<float>(3 * (i % 32));
    }
    EXPECT_EQ(wrong, 0U) << length;
  }
}

TEST_P(Modes, ReturnsUnprocessedPacketsUnchanged) {
  WorkerSession session = open_session(GetParam(), {.process_packets = false, .workers = 4});
  std::vector<std::int32_t> integers(1000, 7);
  std::vector<float> floats(1000, 0.375F);
  session.all_reduce(integers, integers);
  session.all_reduce(std::span<const float>(floats), std::span(floats));
  EXPECT_EQ(integers, std::vector<std::int32_t>(1000, 7));
  EXPECT_EQ(floats, std::vector<float>(1000, 0.375F));
}

TEST_P(Modes, NanAndInfArePreserved) {
  WorkerSession session = open_session(GetParam(), {.workers = 2});
  std::vector<float> data(2000, 1);
  data[3] = std::numeric_limits<float>::quiet_NaN();
  data[1500] = -std::numeric_limits<float>::infinity();
  session.all_reduce(std::span<const float>(data), std::span(data));
  EXPECT_TRUE(std::isnan(data[3]));
  EXPECT_EQ(data[1500], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(data[1000], 2);
}

TEST(DummyTransport, TakesTheTimeOfTheSimulatedLink) {
  WorkerSession session = open_session(Mode::kSwitchMl, {.megabits_per_second = 1, .workers = 2});
  std::vector<std::int32_t> data(5'000, 1);
  const Time begin = steady_now();
  session.all_reduce(data, data);
  EXPECT_GE(steady_now() - begin, std::chrono::milliseconds(8 * 4 * 5));  // 20,000 bytes and headers at 1 bit per us
}

TEST(DummyTransport, WaitForASlowLinkCanBeCancelled) {
  WorkerSession session = open_session(Mode::kExtended, {.megabits_per_second = 1e-6, .workers = 2});
  std::vector<std::int32_t> data(1000, 1);
  std::thread canceller([&] { session.cancel("enough"); });
  EXPECT_THROW(session.all_reduce(data, data), Cancelled);
  canceller.join();
}

}  // namespace
}  // namespace weft::aggregation
