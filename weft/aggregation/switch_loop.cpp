#include "weft/aggregation/switch_loop.h"

#include "weft/aggregation/aggregation_switch.h"

namespace weft::aggregation {

SwitchLoop::SwitchLoop(Jobs& jobs, std::unique_ptr<Transport> transport)
    : jobs_(jobs), transport_(std::move(transport)) {}

void SwitchLoop::run() {
  Outbox out;
  const Transport::Receiver take = [&](const PacketRun& run) {
    const Time now = steady_now();
    jobs_.with_switch([&](AggregationSwitch& aggregation) {
      run.for_each([&](std::span<const std::byte> packet) { aggregation.handle(packet, run.from, now, out); });
    });
  };
  while (!stopping_) {
    transport_->receive(std::chrono::seconds(1), take);
    transport_->send(out);
  }
}

void SwitchLoop::stop() {
  stopping_ = true;
  transport_->wake();
}

}  // namespace weft::aggregation
