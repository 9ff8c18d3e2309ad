// Fuzz target: arbitrary sequences of datagrams for a switch with one job of each format, and for a worker.
//
// Input: chunks of a control byte, a little-endian 16-bit length and a datagram. Bits 0-1 of the control byte select
// the sender; bit 2 writes the correct job, epoch and tag into an extended packet, so that mutations pass
// authentication; bit 3 passes the datagram to the worker.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tests/aggregation/switch/switch_driver.h"
#include "weft/aggregation/worker/worker.h"

namespace {

using namespace weft::aggregation;

// Like assert, but in every build.
void require(bool holds) {
  if (!holds) std::abort();
}

struct Target {
  SwitchDriver driver{extended()};
  Worker worker{identity(), driver.admission};
  std::vector<std::int32_t> data = std::vector<std::int32_t>(500, 3);
  std::unique_ptr<SumStream> operation =
      make_sum(identity().layout, std::span<const std::int32_t>(data), std::span(data));
  Outbox out;

  Target() {
    JobSpec classic = job_spec(Mode::kSwitchMl, 2, 2);
    classic.addresses = {worker_address(2), worker_address(3)};
    (void)driver.jobs.admit(classic, Time{0});
    worker.begin(*operation, Time{0}, out);
  }
  static JobSpec extended() { return job_spec(Mode::kExtended, 2); }
  static WorkerIdentity identity() { return {{Mode::kExtended, 64, 2, 4}, 0, kTestKey, {}, {1, 2}}; }

  // Writes the fields that a stranger cannot know.
  void make_valid(Bytes& bytes) const {
    const auto packet = decode(bytes);
    if (!packet || packet->head.mode != Mode::kExtended) return;
    Head head = packet->head;
    head.job = driver.admission.job;
    head.epoch = driver.admission.epoch;
    (void)write_head(bytes, head, {packet->exponents.size(), packet->element_count()});
    const bool contribution = head.kind == Kind::kContribution;
    const Sender sender{contribution ? Sender::Role::kWorker : Sender::Role::kSwitch,
                        head.epoch,
                        head.job,
                        contribution ? head.rank : std::uint16_t{0},
                        {}};
    PacketMac(kTestKey, sender).seal(bytes);
  }

  void to_switch(const Bytes& bytes, int sender) {
    for (const Sent& sent : driver.put(bytes, worker_address(sender))) require(decode(sent.bytes).has_value());
    for (const JobStatus& job : driver.jobs.snapshot(Time{0}).jobs) {
      require(job.slots_busy >= 0 && job.slots_busy <= 2 * job.slots);
    }
  }
  void to_worker(const Bytes& bytes) {
    worker.handle(bytes, Time{++driver.now}, out);
    worker.on_time(Time{driver.now}, out);
    out.clear();
    if (worker.done())
      worker.begin(*(operation = make_sum(identity().layout, std::span<const std::int32_t>(data), std::span(data))),
                   Time{0}, out);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Target target;
  while (size >= 3) {
    const std::uint8_t control = data[0];
    const std::size_t length = std::min<std::size_t>(data[1] | data[2] << 8, size - 3);
    const auto* first = reinterpret_cast<const std::byte*>(data + 3);
    Bytes bytes(first, first + length);
    if ((control & 4U) != 0) target.make_valid(bytes);
    if ((control & 8U) != 0) {
      target.to_worker(bytes);
    } else {
      target.to_switch(bytes, control & 3U);
    }
    data += 3 + length;
    size -= 3 + length;
  }
  return 0;
}
