// Sums over UDP sockets of this host, and their errors.
#include "weft/aggregation/worker/worker_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/aggregation/faulty_transport.h"
#include "tests/aggregation/live_job.h"
#include "weft/aggregation/worker/error.h"

namespace weft::aggregation {
namespace {

using numeric::BFloat16;
using numeric::Float16;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Path {
  Mode mode;
  bool segmentation;
  int workers;
  int packet_elements;
};

class Paths : public testing::TestWithParam<Path> {
 protected:
  LiveSwitch target;
  LiveJob job{target,
              {.mode = GetParam().mode,
               .workers = GetParam().workers,
               .packet_elements = GetParam().packet_elements,
               .segmentation = GetParam().segmentation}};
};
INSTANTIATE_TEST_SUITE_P(All, Paths,
                         testing::Values(Path{Mode::kSwitchMl, true, 2, 256}, Path{Mode::kSwitchMl, false, 3, 64},
                                         Path{Mode::kExtended, true, 2, 320}, Path{Mode::kExtended, false, 3, 64},
                                         Path{Mode::kExtended, true, 5, 8192}, Path{Mode::kExtended, true, 1, 64}));

TEST_P(Paths, IntegersAreExact) {
  job.run([&](int rank, WorkerSession& session) {
    for (const std::size_t length : {1UL, 255UL, 256UL, 100'000UL, 0UL, 77'777UL}) {
      std::vector<std::int32_t> in(length);
      for (std::size_t i = 0; i < length; ++i) in[i] = static_cast<std::int32_t>(i * 1'000'003) * (rank + 1);
      std::vector<std::int32_t> out(length);
      session.all_reduce(in, out);
      const int factor = GetParam().workers * (GetParam().workers + 1) / 2;
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < length; ++i) {
        const auto expected = static_cast<std::uint32_t>(i * 1'000'003) * static_cast<std::uint32_t>(factor);
        wrong += static_cast<std::uint32_t>(out[i]) != expected ? 1U : 0U;
      }
      EXPECT_EQ(wrong, 0U) << length;
      EXPECT_EQ(session.progress(), static_cast<std::int64_t>(length));
    }
  });
}

// Small integers times a power of two are exact in all three types.
template <class Number, class Make>
void expect_small_sums(LiveJob& job, Make make, double (*value)(Number)) {
  job.run([&](int rank, WorkerSession& session) {
    std::vector<Number> data(5000);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = make(static_cast<float>(i % 16) + static_cast<float>(rank));
    session.all_reduce(std::span<const Number>(data), std::span(data));
    const int n = job.options.workers;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      wrong += value(data[i]) != static_cast<double>(n * static_cast<int>(i % 16) + n * (n - 1) / 2) ? 1U : 0U;
    }
    EXPECT_EQ(wrong, 0U);
  });
}

TEST_P(Paths, SumsFloatsOfAllTypesInPlace) {
  expect_small_sums<float>(job, [](float x) { return x; }, [](float x) { return static_cast<double>(x); });
  expect_small_sums<Float16>(job, Float16::from_float, [](Float16 x) { return static_cast<double>(x.to_float()); });
  expect_small_sums<BFloat16>(job, BFloat16::from_float, [](BFloat16 x) { return static_cast<double>(x.to_float()); });
}

TEST_P(Paths, NanAndInfArePreservedAndAllWorkersHaveTheSameBits) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(GetParam().workers));
  job.run([&](int rank, WorkerSession& session) {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<float> data(20'000);
    for (float& x : data) x = std::normal_distribution<float>()(random);
    if (rank == 0) data[17'000] = std::numeric_limits<float>::infinity();
    if (rank == GetParam().workers - 1) data[3] = std::numeric_limits<float>::quiet_NaN();
    session.all_reduce(std::span<const float>(data), std::span(data));
    results[static_cast<std::size_t>(rank)] = data;
  });
  EXPECT_TRUE(std::isnan(results[0][3]));
  EXPECT_EQ(results[0][17'000], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isfinite(results[0][10'000]));
  for (const auto& result : results) EXPECT_EQ(std::memcmp(result.data(), results[0].data(), 4 * result.size()), 0);
}

TEST(Session, SurvivesLossDuplicationAndReordering) {
  for (const Mode mode : {Mode::kSwitchMl, Mode::kExtended}) {
    LiveSwitch target(std::make_unique<UdpTransport>(LiveSwitch::switch_options()));
    LiveOptions options{.mode = mode, .workers = 3, .window = 32};
    options.make_transport = [](int rank) {
      UdpOptions udp;
      udp.local = kLoopback;
      return std::make_unique<FaultyTransport>(std::make_unique<UdpTransport>(udp), 0.05, static_cast<unsigned>(rank));
    };
    LiveJob job(target, options);
    job.run([&](int rank, WorkerSession& session) {
      for (int number = 0; number < 4; ++number) {
        std::vector<float> data(40'000, static_cast<float>(rank + number));
        session.all_reduce(std::span<const float>(data), std::span(data));
        EXPECT_EQ(std::ranges::count(data, static_cast<float>(3 + 3 * number)), 40'000) << number;
      }
    });
    const PacketCounters counters = target.jobs->snapshot(steady_now()).jobs[0].counters;
    EXPECT_GT(counters.duplicates, 0U);
    EXPECT_GT(counters.rejected_for(Rejected::kLate), 0U);
    EXPECT_GT(job.sessions[0]->statistics().retransmissions, 0U);
  }
}

TEST(Session, RejectsInvalidOptions) {
  LiveSwitch target;
  const auto make = [&](WorkerOptions options, Admission admission) {
    UdpOptions udp;
    udp.local = kLoopback;
    return WorkerSession(std::make_unique<UdpTransport>(udp), std::move(options), admission);
  };
  Admission admission;
  admission.slots = 4;
  EXPECT_THAT([&] { make({.rank = 2, .workers = 2}, admission); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("rank 2 is out of range for 2 workers")));
  EXPECT_THAT([&] { make({.workers = 0}, admission); }, ThrowsMessage<std::invalid_argument>(HasSubstr("0 workers")));
  EXPECT_THAT([&] { make({.window = 0}, admission); }, ThrowsMessage<std::invalid_argument>(HasSubstr("window of 0")));
  EXPECT_THAT([&] { make({}, Admission{}); }, ThrowsMessage<std::invalid_argument>(HasSubstr("0 slots")));
  WorkerSession session = make({}, admission);
  std::vector<float> in(3);
  std::vector<float> out(4);
  EXPECT_THAT([&] { session.all_reduce(std::span<const float>(in), std::span(out)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("the input has 3 elements, but the output has 4")));
}

TEST(Session, AMissingPeerCausesATimeout) {
  LiveSwitch target;
  LiveJob job(target, {.timeout = std::chrono::milliseconds(300)});
  std::vector<float> data(1000, 1);
  EXPECT_THAT([&] { job.sessions[0]->all_reduce(std::span<const float>(data), std::span(data)); },
              ThrowsMessage<SwitchTimeout>(HasSubstr("rank 0: no sum from the switch at 127.0.0.1:")));
}

TEST(Session, CanBeCancelledFromAnotherThread) {
  LiveSwitch target;
  LiveJob job(target, {});
  std::vector<float> data(1000, 1);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    job.sessions[0]->cancel("the user pressed a key");
  });
  const auto call = [&] { job.sessions[0]->all_reduce(std::span<const float>(data), std::span(data)); };
  EXPECT_THAT(call, ThrowsMessage<Cancelled>(HasSubstr("the user pressed a key")));
  EXPECT_THAT(call, ThrowsMessage<Cancelled>(HasSubstr("the user pressed a key")));
  other.join();
}

TEST(Session, DifferentCallsThrowOnEveryWorker) {
  LiveSwitch target;
  LiveJob job(target, {.workers = 3});
  std::atomic<int> told = 0;
  job.run([&](int rank, WorkerSession& session) {
    std::vector<float> data(rank == 1 ? 2000 : 1000);
    try {
      session.all_reduce(std::span<const float>(data), std::span(data));
    } catch (const OperationsDiffer&) {
      ++told;
    }
  });
  EXPECT_EQ(told, 3);
}

// A sum on one worker and a mean on another send the same kind of packets. The call before must complete, although a
// worker may receive the notice while it still waits for the result of that call.
TEST(Session, DifferentReductionsThrowOnEveryWorker) {
  LiveSwitch target;
  LiveJob job(target, {.workers = 3});
  std::atomic<int> told = 0;
  job.run([&](int rank, WorkerSession& session) {
    std::vector<float> data(1000);
    session.all_reduce(std::span<const float>(data), std::span(data));
    try {
      session.all_reduce(std::span<const float>(data), std::span(data), rank == 1 ? Reduction::kMean : Reduction::kSum);
    } catch (const OperationsDiffer&) {
      ++told;
    }
  });
  EXPECT_EQ(told, 3);
}

// With 3e38, the sum exceeds the largest float, but the mean does not.
TEST_P(Paths, MeansAreRoundedOnceAndDoNotOverflow) {
  const int n = GetParam().workers;
  job.run([&](int rank, WorkerSession& session) {
    constexpr std::size_t kLarge = 8192;
    std::vector<float> data(kLarge + 3000, 3e38F);
    for (std::size_t i = kLarge; i < data.size(); ++i) data[i] = static_cast<float>(rank + static_cast<int>(i));
    data[kLarge + 200] = 1e-10F;  // its block takes two rounds
    session.all_reduce(std::span<const float>(data), std::span(data), Reduction::kMean);
    EXPECT_EQ(data[0], 3e38F);
    EXPECT_NEAR(data[kLarge + 200], 1e-10F, 1e-12F);
    for (const std::size_t i : {kLarge, kLarge + 100, kLarge + 2999}) {
      EXPECT_EQ(data[i], static_cast<float>((static_cast<double>(i) * n + n * (n - 1) / 2) / n));
    }
    std::vector<std::int32_t> integers(3);
    EXPECT_THROW(session.all_reduce(std::span<const std::int32_t>(integers), std::span(integers), Reduction::kMean),
                 std::invalid_argument);
  });
}

// The largest packets have room for further rounds of some blocks, but not of all.
TEST(Session, LargePacketsCarryFurtherRounds) {
  constexpr int kElements = 16'192;
  LiveSwitch target;
  LiveJob job(target, {.workers = 3, .packet_elements = kElements, .window = 4});
  job.run([&](int rank, WorkerSession& session) {
    for (const std::size_t distance : {16 * kBlockElements, kBlockElements}) {
      std::vector<float> data(10 * kElements + 5, static_cast<float>(rank + 1));
      for (std::size_t i = 0; i < data.size(); i += distance) data[i] = 1e-10F;
      const std::uint64_t before = session.statistics().extra_rounds;
      session.all_reduce(std::span<const float>(data), std::span(data));
      const std::uint64_t packets = session.statistics().extra_rounds - before;
      EXPECT_EQ(packets > 0, distance == kBlockElements) << packets;
      for (std::size_t i = 0; i < data.size(); ++i) {
        if (i % distance == 0) {
          ASSERT_NEAR(data[i], 3e-10F, 3e-12F) << i;
        } else {
          ASSERT_EQ(data[i], 6) << i;
        }
      }
    }
  });
}

// Callers may have set another rounding mode or flush-to-zero.
TEST(Session, TheResultDoesNotDependOnTheCallersFloatingPointEnvironment) {
  LiveSwitch target;
  LiveJob job(target, {.workers = 2});
  std::vector<std::vector<float>> results(2);
  job.run([&](int rank, WorkerSession& session) {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<float> data(20'000);
    for (float& x : data) x = std::normal_distribution<float>()(random) * (rank == 0 ? 1e-3F : 1e-38F);
    std::fill(data.begin(), data.begin() + 64, 1e-40F);  // a block of subnormals
    if (rank == 1) std::fesetround(FE_UPWARD);
    session.all_reduce(std::span<const float>(data), std::span(data));
    if (rank == 1) EXPECT_EQ(std::fegetround(), FE_UPWARD);
    std::fesetround(FE_TONEAREST);
    results[static_cast<std::size_t>(rank)] = data;
  });
  EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), 4 * results[0].size()), 0);
}

TEST(Session, AnEndedJobThrowsWithoutRejoin) {
  LiveSwitch target;
  LiveJob job(target, {});
  EXPECT_TRUE(target.jobs->end(1));
  std::vector<std::int32_t> data(10);
  EXPECT_THAT([&] { job.sessions[1]->all_reduce(std::span<const std::int32_t>(data), std::span(data)); },
              ThrowsMessage<JobLost>(HasSubstr("no longer knows this job")));
}

// Operations before, during and after a restart of the switch at the same address.
TEST(Session, SurvivesARestartOfTheSwitch) {
  for (const Mode mode : {Mode::kExtended, Mode::kSwitchMl}) {
    auto target = std::make_unique<LiveSwitch>(1);
    std::mutex mutex;
    std::optional<Admission> admission;
    LiveOptions options{.mode = mode, .workers = 3, .window = 16};
    options.rejoin = [&] {
      const std::lock_guard lock(mutex);
      return admission;
    };
    LiveJob job(*target, options);
    admission = job.admission;
    const Address address = target->address;
    std::thread killer([&] {
      for (std::uint64_t epoch = 2; epoch < 5; ++epoch) {
        std::this_thread::sleep_for(std::chrono::milliseconds(40));
        target.reset();
        UdpOptions udp = LiveSwitch::switch_options();
        udp.local = address;
        target = std::make_unique<LiveSwitch>(epoch, udp);
        const std::lock_guard lock(mutex);
        admission = std::get<Admission>(target->jobs->admit(job.spec, steady_now()));
      }
    });
    job.run([&](int rank, WorkerSession& session) {
      for (int number = 0; number < 60; ++number) {
        std::vector<std::int32_t> data(30'000, rank + number);
        session.all_reduce(std::span<const std::int32_t>(data), std::span(data));
        ASSERT_EQ(data, std::vector<std::int32_t>(30'000, 3 + 3 * number)) << "operation " << number;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      session.linger(std::chrono::seconds(2));
    });
    killer.join();
    // SwitchML's packets have no epoch: if no sum was running, a restarted switch accepts them.
    EXPECT_GE(job.sessions[0]->statistics().rejoins, mode == Mode::kExtended ? 1U : 0U);
    EXPECT_EQ(job.sessions[0]->statistics().operations, 60U);
  }
}

}  // namespace
}  // namespace weft::aggregation
