// State of a job in the switch: slots, worker addresses and keys, counters.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/aggregation/config/job.h"
#include "weft/aggregation/packet/packet_mac.h"
#include "weft/aggregation/packet/shared_slots.h"
#include "weft/aggregation/switch/slot_pool.h"
#include "weft/aggregation/switch/switch_status.h"

namespace weft::aggregation {

class SwitchJob {
 public:
  SwitchJob(const JobSpec& spec, const Admission& admission, SlotPool pool, Time now);

  [[nodiscard]] const JobSpec& spec() const { return spec_; }
  [[nodiscard]] const Admission& admission() const { return admission_; }
  [[nodiscard]] JobStatus status(Time now) const;
  [[nodiscard]] Duration idle(Time now) const { return now - last_packet_; }

  // `memory` is shared with the worker; null: none.
  void place(int rank, const Address& address, const WorkerSalt& salt, std::shared_ptr<const SharedSlots> memory);
  [[nodiscard]] const std::vector<std::optional<Address>>& places() const { return places_; }
  // Whether worker `rank` sends from this address. A registered port 0 matches any port.
  [[nodiscard]] bool is_place_of(int rank, const Address& from) const;
  // Returns the routes to all workers. `port` is the source port of the sum's last packet; workers registered with port
  // 0 receive there. The workers that share memory come last.
  [[nodiscard]] std::span<const Route> receivers(std::uint16_t port);
  // Memory shared with worker `rank`; null: none.
  [[nodiscard]] const SharedSlots* memory(int rank) const { return memory_[static_cast<std::size_t>(rank)].get(); }
  // The ranks that share memory.
  [[nodiscard]] std::span<const int> sharing() const { return sharing_; }

  // Returns the turn of a packet of this job, or nullopt if its operation is not running.
  [[nodiscard]] std::optional<Turn> turn_of(const Head& head) const;
  void note_completed(const Turn& turn);
  void note_accepted(int rank, const Route& from, Time now) {
    std::uint32_t& own = own_[static_cast<std::size_t>(rank)];
    if (own != from.own) own = from.own, receivers_.clear();
    last_packet_ = now;
  }

  [[nodiscard]] const WorkerSalt& salt(int rank) const { return salts_[static_cast<std::size_t>(rank)]; }
  // Authenticates contributions of worker `rank`.
  [[nodiscard]] PacketMac& worker_mac(int rank) { return worker_macs_[static_cast<std::size_t>(rank)]; }

  SlotPool pool;
  PacketCounters counters;
  PacketMac mac;  // authenticates results and notices

 private:
  void key_worker(int rank, const WorkerSalt& salt);
  [[nodiscard]] std::uint64_t sequence_of(const Head& head, std::int64_t operation) const;

  JobSpec spec_;
  Admission admission_;
  Time admitted_;
  Time last_packet_;
  std::vector<std::optional<Address>> places_;
  std::vector<WorkerSalt> salts_;       // by rank
  std::vector<PacketMac> worker_macs_;  // by rank
  std::vector<std::uint32_t> own_;      // by rank: the switch's address that the worker's last packet was sent to
  std::vector<std::shared_ptr<const SharedSlots>> memory_;  // by rank
  std::vector<int> sharing_;
  std::vector<Route> receivers_;  // cache for receivers_port_; empty if invalid
  std::uint16_t receivers_port_ = 0;
  std::optional<std::int64_t> newest_operation_;  // kSwitchMl: newest operation of all complete sums
};

}  // namespace weft::aggregation
