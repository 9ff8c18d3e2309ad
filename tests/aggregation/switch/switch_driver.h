// A switch in memory: the test passes contributions and gets the sent packets decoded.
#pragma once

#include <variant>
#include <vector>

#include "tests/aggregation/packet/bytes.h"
#include "weft/aggregation/packet/byte_order.h"
#include "weft/aggregation/packet/packet.h"
#include "weft/aggregation/packet/packet_mac.h"
#include "weft/aggregation/switch/aggregation_switch.h"
#include "weft/aggregation/transport/outbox.h"

namespace weft::aggregation {

inline constexpr SessionKey kTestKey{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

inline Address worker_address(int rank) { return {0x0a000001U + static_cast<std::uint32_t>(rank), 4000}; }

inline JobSpec job_spec(Mode mode, int workers, std::uint64_t session = 1) {
  JobSpec spec{.name = "test", .session = session, .mode = mode, .workers = workers, .packet_elements = 64, .slots = 8};
  spec.key = kTestKey;
  for (int rank = 0; rank < workers; ++rank) spec.addresses.push_back(worker_address(rank));
  return spec;
}

struct Sent {
  std::vector<Address> to;
  Bytes bytes;

  [[nodiscard]] Packet packet() const { return *decode(bytes); }
  [[nodiscard]] std::int32_t element(std::size_t i) const {
    return static_cast<std::int32_t>(load_big_endian<std::uint32_t>(packet().elements.data() + 4 * i));
  }
};

// A contribution in which all elements have one value and all exponents another.
inline Bytes contribution(const Head& head, std::int32_t value, std::int8_t exponent = 0,
                          const Shape& shape = full_shape(Mode::kExtended, 64), const SessionKey& key = kTestKey) {
  Bytes bytes(packet_size(head.mode, shape));
  const Body body = write_head(bytes, head, shape);
  for (std::byte& byte : body.exponents) byte = static_cast<std::byte>(exponent);
  for (std::size_t i = 0; i < shape.elements; ++i) {
    store_big_endian(body.elements.data() + 4 * i, static_cast<std::uint32_t>(value));
  }
  if (head.mode == Mode::kExtended) {
    PacketMac(key, {Sender::Role::kWorker, head.epoch, head.job, head.rank, {}}).seal(bytes);
  }
  return bytes;
}

class SwitchDriver {
 public:
  explicit SwitchDriver(const JobSpec& spec, const SwitchLimits& limits = {}, std::uint64_t epoch = 77)
      : jobs(limits, epoch) {
    admission = std::get<Admission>(jobs.admit(spec, Time{0}));
  }

  [[nodiscard]] Head head(const JobSpec& spec, int rank, std::uint32_t slot, std::uint64_t sequence) const {
    Head head{.mode = spec.mode, .slot = slot, .set = static_cast<std::uint8_t>(sequence & 1U), .sequence = sequence};
    if (spec.mode == Mode::kSwitchMl) return head;
    head.rank = static_cast<std::uint16_t>(rank);
    head.job = admission.job;
    head.epoch = admission.epoch;
    head.operation = 5;
    return head;
  }

  // Whether a packet carries the tag of this driver's switch.
  [[nodiscard]] bool is_from_switch(const Bytes& bytes) const {
    return PacketMac(kTestKey, {Sender::Role::kSwitch, admission.epoch, admission.job, 0, {}}).verify(bytes);
  }

  std::vector<Sent> put(const Bytes& bytes, const Address& from) {
    Outbox out;
    jobs.handle(bytes, from, Time{++now}, out);
    std::vector<Sent> sent;
    out.for_each_run(1, 1 << 20, [&](auto to, auto run) {
      sent.push_back({{}, {run[0].begin(), run[0].end()}});
      for (const Route& route : to) sent.back().to.push_back(route.peer);
    });
    return sent;
  }

  [[nodiscard]] PacketCounters counters() const { return jobs.snapshot(Time{now}).jobs.at(0).counters; }
  [[nodiscard]] PacketCounters strays() const { return jobs.snapshot(Time{now}).strays; }

  Jobs jobs;
  Admission admission;
  std::int64_t now = 0;
};

}  // namespace weft::aggregation
