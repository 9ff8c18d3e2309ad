// A switch in memory, fed by hand: contributions in, what it sends out as decoded packets.
#pragma once

#include <variant>
#include <vector>

#include "tests/aggregation/bytes.h"
#include "weft/aggregation/aggregation_switch.h"
#include "weft/aggregation/byte_order.h"
#include "weft/aggregation/outbox.h"
#include "weft/aggregation/packet.h"

namespace weft::aggregation {

inline constexpr PacketKey kTestKey{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

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

// A contribution whose elements all have one value, and whose exponents are this one.
inline Bytes contribution(const Head& head, std::int32_t value, std::int8_t exponent = 0,
                          const Shape& shape = full_shape(Mode::kExtended, 64), const PacketKey& key = kTestKey) {
  Bytes bytes(packet_size(head.mode, shape));
  const Body body = write_head(bytes, head, shape);
  for (std::byte& byte : body.exponents) byte = static_cast<std::byte>(exponent);
  for (std::size_t i = 0; i < shape.elements; ++i) {
    store_big_endian(body.elements.data() + 4 * i, static_cast<std::uint32_t>(value));
  }
  seal(bytes, head.mode, key);
  return bytes;
}

class SwitchDriver {
 public:
  explicit SwitchDriver(const JobSpec& spec, const SwitchLimits& limits = {}) : jobs(limits, 77) {
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

  [[nodiscard]] Counters counters() const { return jobs.snapshot(Time{now}).jobs.at(0).counters; }
  [[nodiscard]] Counters strays() const { return jobs.snapshot(Time{now}).strays; }

  Jobs jobs;
  Admission admission;
  std::int64_t now = 0;
};

}  // namespace weft::aggregation
