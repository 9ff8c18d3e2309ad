// A job inside the switch: its slots, where its workers are, what was counted.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "weft/aggregation/counters.h"
#include "weft/aggregation/job.h"
#include "weft/aggregation/slot_pool.h"

namespace weft::aggregation {

class AdmittedJob {
 public:
  AdmittedJob(const JobSpec& spec, const Admission& admission, SlotPool pool, Time now);

  [[nodiscard]] const JobSpec& spec() const { return spec_; }
  [[nodiscard]] const Admission& admission() const { return admission_; }
  [[nodiscard]] JobStatus status(Time now) const;
  [[nodiscard]] Duration idle(Time now) const { return now - last_packet_; }

  void place(int rank, const Address& address) {
    places_[static_cast<std::size_t>(rank)] = address;
    receivers_.clear();
  }
  [[nodiscard]] const std::vector<std::optional<Address>>& places() const { return places_; }
  // Whether that worker is there; port 0 in its place stands for any.
  [[nodiscard]] bool is_place_of(int rank, const Address& from) const;
  // All workers, for a sum whose last packet came from that port.
  [[nodiscard]] std::span<const Route> receivers(std::uint16_t port);

  // Of a packet of this job; nothing for an operation that is not under way.
  [[nodiscard]] std::optional<Turn> turn_of(const Head& head) const;
  void note_completed(const Turn& turn);
  void note_accepted(int rank, const Route& from, Time now) {
    std::uint32_t& own = own_[static_cast<std::size_t>(rank)];
    if (own != from.own) own = from.own, receivers_.clear();
    last_packet_ = now;
  }

  SlotPool pool;
  Counters counters;

 private:
  [[nodiscard]] std::uint64_t sequence_of(const Head& head, std::int64_t operation) const;

  JobSpec spec_;
  Admission admission_;
  Time admitted_;
  Time last_packet_;
  std::vector<std::optional<Address>> places_;
  std::vector<std::uint32_t> own_;  // by rank: which address of the switch it talks to, as its last packet told
  std::vector<Route> receivers_;    // for receivers_port_; empty where they have to be looked up anew
  std::uint16_t receivers_port_ = 0;
  std::optional<std::int64_t> newest_operation_;  // kSwitchMl: of all complete sums
};

}  // namespace weft::aggregation
