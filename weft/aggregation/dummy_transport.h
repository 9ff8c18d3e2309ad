// SwitchML's "dummy" backend: no network, but all that a worker does for one. For measuring what a client costs, and
// for trying its set-up where there is no switch; what it answers are no sums over the workers.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "weft/aggregation/transport.h"
#include "weft/files/file_descriptor.h"

namespace weft::aggregation {

// SwitchML's [backend.dummy].
struct DummyOptions {
  double megabits_per_second = 1000;  // of the link that is pretended, above 0
  // Elements come back as often as there are workers, as if all had sent the same; false: as they were sent.
  bool process_packets = true;
  int workers = 1;
};

// A worker's transport, whose packets are all answered by itself. Jobs with a key have no use for it.
class DummyTransport final : public Transport {
 public:
  explicit DummyTransport(const DummyOptions& options);

  [[nodiscard]] Address local() const override { return {}; }
  void send(Outbox& out) override;
  bool receive(Duration longest, const Receiver& receiver) override;
  void wake() override;
  // Tells nothing of packets: a SwitchLoop cannot wait for it.
  [[nodiscard]] int descriptor() const override { return wakes_.get(); }
  bool accept_only(std::span<const Address> /*sources*/) override { return true; }

 private:
  struct Answer {
    Time due;
    Address from;
    std::vector<std::byte> bytes;
  };

  [[nodiscard]] std::vector<std::byte> answer_to(std::span<const std::byte> packet) const;
  [[nodiscard]] Duration time_of(std::size_t bytes) const;

  DummyOptions options_;
  files::FileDescriptor wakes_;  // an eventfd
  std::deque<Answer> answers_;   // in the order of their times
  Time link_free_{0};
};

}  // namespace weft::aggregation
