// Real packets between network namespaces, on lossy links.
#include "tests/aggregation/namespaces.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::aggregation {
namespace {

class Links : public testing::TestWithParam<std::tuple<int, std::string>> {};
INSTANTIATE_TEST_SUITE_P(All, Links, testing::Combine(testing::Values(2, 4, 8), testing::Values("0", "0.1", "1", "5")));

TEST_P(Links, SumsAreCorrect) {
  if (!Namespaces::possible()) GTEST_SKIP() << "network namespaces with tc and BPF are not permitted here";
  const auto& [workers, loss] = GetParam();
  const Namespaces namespaces(workers, "--loss " + loss);
  for (const Mode mode : {Mode::kSwitchMl, Mode::kExtended}) {
    LiveSwitch target(namespaces.switch_transport());
    LiveOptions options{.mode = mode, .workers = workers};
    options.packet_elements = mode == Mode::kSwitchMl ? 256 : 320;
    options.make_transport = [&](int rank) { return namespaces.worker_transport(rank); };
    LiveJob job(target, options);
    const std::size_t length = 100'003;
    job.run([&, n = workers](int rank, WorkerSession& session) {
      std::vector<std::int32_t> integers(length);
      std::vector<float> floats(length);
      for (std::size_t i = 0; i < length; ++i) {
        integers[i] = static_cast<std::int32_t>(i) * (rank + 1);
        floats[i] = static_cast<float>(i % 4096) * static_cast<float>(rank + 1);
      }
      session.all_reduce(std::span<const std::int32_t>(integers), std::span(integers));
      session.all_reduce(std::span<const float>(floats), std::span(floats));
      const int factor = n * (n + 1) / 2;
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < length; ++i) {
        wrong += integers[i] != static_cast<std::int32_t>(i) * factor ? 1U : 0U;
        wrong += floats[i] != static_cast<float>(i % 4096) * static_cast<float>(factor) ? 1U : 0U;
      }
      EXPECT_EQ(wrong, 0U) << "rank " << rank;
    });
    const PacketCounters counters = target.jobs->snapshot(steady_now()).jobs[0].counters;
    EXPECT_TRUE(loss != "5" || counters.duplicates > 0) << "these links lose packets";
  }
}

// Median time of three sums on links with the given loss in percent.
Duration median_time(int workers, const std::string& loss) {
  const Namespaces namespaces(workers, "--loss " + loss);
  LiveSwitch target(namespaces.switch_transport());
  LiveOptions options{.mode = Mode::kExtended, .workers = workers, .packet_elements = 320};
  options.make_transport = [&](int rank) { return namespaces.worker_transport(rank); };
  LiveJob job(target, options);
  std::vector<Duration> times;
  for (int i = 0; i < 4; ++i) {
    const Time start = steady_now();
    job.run([](int rank, WorkerSession& session) {
      std::vector<std::int32_t> data(1'000'000, rank);
      session.all_reduce(std::span<const std::int32_t>(data), std::span(data));
    });
    if (i > 0) times.push_back(steady_now() - start);  // the first sum resolves addresses
  }
  std::ranges::sort(times);
  return times[1];
}

class Losses : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, Losses, testing::Values(2, 4, 8));

TEST_P(Losses, OnePercentAtMostTriplesTheTimeOfASum) {
  if (!Namespaces::possible()) GTEST_SKIP() << "network namespaces with tc and BPF are not permitted here";
  const Duration lossless = median_time(GetParam(), "0");
  const Duration lossy = median_time(GetParam(), "1");
  EXPECT_LE(lossy, 3 * lossless);
}

}  // namespace
}  // namespace weft::aggregation
