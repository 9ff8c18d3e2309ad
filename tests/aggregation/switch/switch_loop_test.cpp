// When the switch's loop sends results and when it stops, without a network.
#include "weft/aggregation/switch/switch_loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/aggregation/switch/switch_driver.h"

namespace weft::aggregation {
namespace {

using Batch = std::vector<std::vector<Bytes>>;  // runs of packets

// Delivers one batch, then calls `idle`.
class ScriptedTransport final : public Transport {
 public:
  explicit ScriptedTransport(Batch batch)
      : batch_(std::move(batch)), ready_(::eventfd(batch_.empty() ? 0 : 1, EFD_CLOEXEC)) {}

  [[nodiscard]] Address local() const override { return {0x7f000001, 1}; }
  void send(Outbox& out) override {
    if (std::exchange(refuses, false)) throw std::runtime_error("cannot be sent");
    sent += out.size();
    out.clear();
  }
  bool receive(Duration, const Receiver& receiver) override {
    if (batch_.empty()) {
      idle();
      return false;
    }
    for (const std::vector<Bytes>& run : std::exchange(batch_, {})) {
      Bytes bytes;
      for (const Bytes& packet : run) bytes.insert(bytes.end(), packet.begin(), packet.end());
      sent_before_run.push_back(sent);
      receiver({bytes, run.front().size(), worker_address(0)});
    }
    return true;
  }
  void wake() override {}
  [[nodiscard]] int descriptor() const override { return ready_.get(); }
  bool accept_only(std::span<const Address>) override { return true; }

  std::function<void()> idle;
  bool refuses = false;  // applies to the next send
  std::size_t sent = 0;
  std::vector<std::size_t> sent_before_run;

 private:
  Batch batch_;
  files::FileDescriptor ready_;
};

class Loop : public testing::Test {
 protected:
  Loop() {
    JobSpec spec = job_spec(Mode::kSwitchMl, 1);  // every packet completes a sum
    spec.slots = 512;
    EXPECT_TRUE(std::holds_alternative<Admission>(jobs_.admit(spec, Time{0})));
  }
  // Returns the transport after a loop has served these runs as one batch.
  [[nodiscard]] const ScriptedTransport& serve(int runs, std::uint32_t packets, bool refuses = false) {
    Batch batch;
    std::uint32_t slot = 0;
    for (int i = 0; i < runs; ++i) {
      std::vector<Bytes> run;
      for (std::uint32_t k = 0; k < packets; ++k) {
        run.push_back(contribution({.mode = Mode::kSwitchMl, .slot = slot++}, 1, 0, full_shape(Mode::kSwitchMl, 64)));
      }
      batch.push_back(std::move(run));
    }
    auto transport = std::make_unique<ScriptedTransport>(std::move(batch));
    ScriptedTransport& kept = *transport;
    kept.refuses = refuses;
    loop_ = std::make_unique<SwitchLoop>(jobs_, std::move(transport));
    kept.idle = [this] { loop_->stop(); };
    loop_->run();
    return kept;
  }

  Jobs jobs_{SwitchLimits{}, 77};
  std::unique_ptr<SwitchLoop> loop_;
};

TEST_F(Loop, SendsAnswersDuringABatch) {
  const ScriptedTransport& transport = serve(4, 57);
  EXPECT_EQ(transport.sent_before_run, (std::vector<std::size_t>{0, 57, 114, 171}));
  EXPECT_EQ(transport.sent, 228U);
}

TEST_F(Loop, FewAnswersWaitUntilTheEndOfTheBatch) {
  const ScriptedTransport& transport = serve(4, 3);
  EXPECT_EQ(transport.sent_before_run, (std::vector<std::size_t>{0, 0, 0, 0}));
  EXPECT_EQ(transport.sent, 12U);
}

TEST_F(Loop, AFailedSendLosesOnlyItsOwnPackets) {
  const ScriptedTransport& transport = serve(4, 57, true);
  EXPECT_EQ(transport.sent, 171U);
  EXPECT_EQ(jobs_.snapshot(Time{0}).lost_on_sending, 57U);
}

// Always has another batch, until the loop seems stuck on it; calls `served` with the number of delivered batches.
class EndlessTransport final : public Transport {
 public:
  explicit EndlessTransport(std::uint16_t port) : port_(port) {}

  [[nodiscard]] Address local() const override { return {0x7f000001, port_}; }
  void send(Outbox& out) override { out.clear(); }
  bool receive(Duration, const Receiver& receiver) override {
    const Bytes packet = contribution({.mode = Mode::kSwitchMl}, 1, 0, full_shape(Mode::kSwitchMl, 64));
    receiver({packet, packet.size(), worker_address(0)});
    served(++batches);
    return batches < 1000;
  }
  void wake() override {}
  [[nodiscard]] int descriptor() const override { return ready_.get(); }
  bool accept_only(std::span<const Address>) override { return true; }

  std::function<void(int)> served = [](int) {};
  int batches = 0;

 private:
  std::uint16_t port_;
  files::FileDescriptor ready_{::eventfd(1, EFD_CLOEXEC)};
};

// The second port waits for at most one batch of the first.
TEST_F(Loop, AFloodedPortDoesNotStarveOthers) {
  std::vector<std::unique_ptr<Transport>> ports;
  std::vector<EndlessTransport*> kept;
  for (std::uint16_t port = 1; port <= 3; ++port) {
    auto transport = std::make_unique<EndlessTransport>(port);
    kept.push_back(transport.get());
    ports.push_back(std::move(transport));
  }
  loop_ = std::make_unique<SwitchLoop>(jobs_, std::move(ports));
  kept[0]->served = [&](int batches) {
    EXPECT_LE(batches, kept[1]->batches + 1);
    EXPECT_LE(batches, kept[2]->batches + 1);
    if (batches == 100) loop_->stop();
  };
  loop_->run();
  EXPECT_EQ(kept[2]->batches, 100);
}

TEST_F(Loop, ServesNothingIfStoppedBeforeRun) {
  auto transport = std::make_unique<ScriptedTransport>(Batch{});
  bool asked = false;
  transport->idle = [&] { asked = true; };
  loop_ = std::make_unique<SwitchLoop>(jobs_, std::move(transport));
  loop_->stop();
  loop_->run();
  EXPECT_FALSE(asked);
}

TEST_F(Loop, StopEndsAWaitingLoop) {
  auto transport = std::make_unique<ScriptedTransport>(Batch{});
  std::atomic<int> looks = 0;
  transport->idle = [&] { ++looks; };
  loop_ = std::make_unique<SwitchLoop>(jobs_, std::move(transport));
  std::thread thread([&] { loop_->run(); });
  while (looks == 0) std::this_thread::yield();
  loop_->stop();
  thread.join();  // hangs on failure
}

}  // namespace
}  // namespace weft::aggregation
