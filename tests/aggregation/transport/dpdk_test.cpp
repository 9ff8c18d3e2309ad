// A worker on DPDK's af_packet device and one on a UDP socket sum through the same switch.
#include "weft/aggregation/transport/dpdk_transport.h"

#include <gtest/gtest.h>

#include "tests/aggregation/namespaces.h"

namespace weft::aggregation {
namespace {

TEST(Dpdk, SumsWithAWorkerOnASocket) {
  ASSERT_TRUE(has_dpdk());
  if (!Namespaces::possible()) GTEST_SKIP() << "network namespaces are not permitted here";
  const Namespaces namespaces(2, "--segment");
  DpdkOptions dpdk;
  dpdk.local = *Address::parse("10.77.0.10:4000");
  dpdk.extra_eal_options = "--no-huge -m 256 --no-pci --no-telemetry --vdev=net_af_packet0,iface=eth0 --log-level=3";
  for (const Mode mode : {Mode::kSwitchMl, Mode::kExtended}) {
    LiveSwitch target(namespaces.switch_transport());
    LiveOptions options{.mode = mode};
    options.make_transport = [&](int rank) -> std::unique_ptr<Transport> {
      if (rank == 1) return namespaces.worker_transport(rank);
      std::unique_ptr<Transport> transport;
      namespaces.run_in("w0", [&] { transport = open_dpdk(dpdk); });
      return transport;
    };
    LiveJob job(target, options);
    job.run([&](int rank, WorkerSession& session) {
      std::vector<std::int32_t> numbers(100'003);
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int32_t>(i) * (rank + 1);
      session.all_reduce(std::span<const std::int32_t>(numbers), std::span(numbers));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < numbers.size(); ++i)
        wrong += numbers[i] != static_cast<std::int32_t>(3 * i) ? 1U : 0U;
      EXPECT_EQ(wrong, 0U) << "rank " << rank;
      std::vector<float> floats(1001, 0.5F);
      session.all_reduce(std::span<const float>(floats), std::span(floats));
      EXPECT_EQ(floats, std::vector<float>(1001, 1.0F)) << "rank " << rank;
    });
  }
}

TEST(Dpdk, RejectsInvalidOptions) {
  if (!Namespaces::possible()) GTEST_SKIP() << "network namespaces are not permitted here";
  DpdkOptions options;
  options.local = *Address::parse("127.0.0.1:0");
  options.port_id = 77;
  options.extra_eal_options = "--no-huge -m 256 --no-pci --no-telemetry --log-level=3";
  EXPECT_THROW((void)open_dpdk(options), std::runtime_error);
}

}  // namespace
}  // namespace weft::aggregation
