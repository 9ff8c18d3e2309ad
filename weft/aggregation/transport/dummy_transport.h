// SwitchML's "dummy" backend: a transport without a network, for measuring a worker's cost and testing a set-up without
// a switch. Its results are not sums over the workers.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "weft/aggregation/transport/transport.h"
#include "weft/files/file_descriptor.h"

namespace weft::aggregation {

// Options of SwitchML's section [backend.dummy].
struct DummyOptions {
  double megabits_per_second = 1000;  // rate of the simulated link; above 0
  // Multiply elements by the number of workers, as if all workers had sent the same; false: return them unchanged.
  bool process_packets = true;
  int workers = 1;
};

// A worker's transport that answers all packets itself. It has no key, so it cannot serve jobs with a key.
class DummyTransport final : public Transport {
 public:
  explicit DummyTransport(const DummyOptions& options);

  [[nodiscard]] Address local() const override { return {}; }
  void send(Outbox& out) override;
  bool receive(Duration longest, const Receiver& receiver) override;
  void wake() override;
  // Does not signal packets, so a SwitchLoop cannot use it.
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
  std::deque<Answer> answers_;   // ordered by due time
  Time link_free_{0};
};

}  // namespace weft::aggregation
