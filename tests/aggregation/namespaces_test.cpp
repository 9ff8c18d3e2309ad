// Real packets between network namespaces, on links that lose some of them.
#include "tests/aggregation/namespaces.h"

#include <gtest/gtest.h>

namespace weft::aggregation {
namespace {

class Links : public testing::TestWithParam<std::tuple<int, std::string>> {};
INSTANTIATE_TEST_SUITE_P(All, Links, testing::Combine(testing::Values(2, 4, 8), testing::Values("0", "0.1", "1", "5")));

TEST_P(Links, SumsAreRight) {
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
    const Counters counters = target.jobs->snapshot(steady_now()).jobs[0].counters;
    EXPECT_TRUE(loss != "5" || counters.duplicates > 0) << "these links lose packets";
  }
}

}  // namespace
}  // namespace weft::aggregation
