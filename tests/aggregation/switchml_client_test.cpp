// Models of SwitchML's own clients at weft's switch, in virtual time: sums are correct and no client hangs.
#include "tests/aggregation/switchml_client.h"

#include <gtest/gtest.h>

#include "tests/aggregation/simulated_job.h"

namespace weft::aggregation {
namespace {

constexpr int kWorkers = 3;
constexpr int kThreads = 2;

class Clients : public testing::TestWithParam<std::uint32_t> {
 protected:
  Clients() {
    JobSpec spec{.name = "", .session = 1, .mode = Mode::kSwitchMl, .workers = kWorkers, .packet_elements = 64};
    spec.tsi_is_little_endian = true;
    for (int rank = 0; rank < kWorkers; ++rank) spec.addresses.push_back({worker_address(rank).ipv4, 0});
    EXPECT_TRUE(std::holds_alternative<Admission>(jobs_.admit(spec, Time{0})));
    for (int i = 0; i < kWorkers * kThreads; ++i) clients_.emplace_back(i % kThreads, GetParam(), kSwitchAddress);
  }

  static Address address_of(std::size_t client) {
    const auto port = static_cast<std::uint16_t>(4000 + client % kThreads);
    return {worker_address(static_cast<int>(client / kThreads)).ipv4, port};
  }
  static std::vector<std::int32_t> input(std::size_t client, int job, std::size_t packets) {
    std::vector<std::int32_t> data(packets * SwitchMlClient::kElements);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::int32_t>((client + 1) * (i + 1)) + job;
    return data;
  }
  static std::vector<std::int32_t> sum(std::size_t thread, int job, std::size_t packets) {
    std::vector<std::int32_t> total(packets * SwitchMlClient::kElements);
    for (std::size_t client = thread; client < kWorkers * kThreads; client += kThreads) {
      const auto data = input(client, job, packets);
      for (std::size_t i = 0; i < data.size(); ++i) total[i] += data[i];
    }
    return total;
  }

  void deliver(const Delivery& delivery) {
    Outbox out;
    if (delivery.to == kSwitchAddress) {
      jobs_.handle(delivery.bytes, delivery.from, now_, out);
    } else {
      const std::size_t rank = delivery.to.ipv4 - worker_address(0).ipv4;
      clients_[rank * kThreads + delivery.to.port - 4000].handle(delivery.bytes, now_, out);
    }
    network_.send(out, delivery.to, now_);
  }
  // Advances to the next event.
  void step() {
    Time next = network_.empty() ? Time::max() : network_.next();
    for (const SwitchMlClient& client : clients_) next = std::min(next, client.next_due());
    now_ = std::max(now_, next);
    while (!network_.empty() && network_.next() <= now_) deliver(network_.take());
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      Outbox out;
      clients_[i].on_time(now_, out);
      network_.send(out, address_of(i), now_);
    }
  }
  // Each thread runs its jobs one after the other.
  void run(const std::vector<std::size_t>& packets) {
    std::vector<std::size_t> begun(clients_.size());
    const auto all_done = [&] { return std::ranges::all_of(begun, [&](std::size_t n) { return n > packets.size(); }); };
    while (!all_done()) {
      ASSERT_LT(now_, std::chrono::seconds(60)) << "of virtual time: a client hangs";
      for (std::size_t i = 0; i < clients_.size(); ++i) {
        while (clients_[i].done() && begun[i] <= packets.size()) go_on(i, begun[i]++, packets);
      }
      if (!all_done()) step();
    }
  }
  // Checks the sum of the previous job and starts the next one, if any.
  void go_on(std::size_t client, std::size_t job, const std::vector<std::size_t>& packets) {
    if (job > 0) {
      ASSERT_EQ(clients_[client].data(), sum(client % kThreads, static_cast<int>(job) - 1, packets[job - 1])) << job;
    }
    if (job == packets.size()) return;
    Outbox out;
    clients_[client].begin(static_cast<std::uint8_t>(job), input(client, static_cast<int>(job), packets[job]), now_,
                           out);
    network_.send(out, address_of(client), now_);
  }

  Jobs jobs_{SwitchLimits{}, 1};
  SimulatedNetwork network_{
      {0.02, 0.05, 0.3, std::chrono::microseconds(50), std::chrono::microseconds(100), std::chrono::milliseconds(3)},
      GetParam()};
  std::vector<SwitchMlClient> clients_;
  Time now_{0};
};
// Outstanding packets per thread. A switch that read the ids as big-endian would stall, depending on the length.
INSTANTIATE_TEST_SUITE_P(Outstanding, Clients, testing::Values(1, 2, 10, 64, 128));

TEST_P(Clients, SumsAreCorrect) { run({700, 1, 3, 1400, 64, 2, 2, 2, 600}); }

TEST_P(Clients, JobNumbersWrap) { run(std::vector<std::size_t>(600, 3)); }

}  // namespace
}  // namespace weft::aggregation
