// The switch as a state machine: packets in, packets out; no sockets, threads or clocks.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "weft/aggregation/switch/jobs.h"
#include "weft/aggregation/switch/switch_job.h"
#include "weft/aggregation/transport/outbox.h"

namespace weft::aggregation {

// Not thread-safe. Jobs is the thread-safe interface and documents the functions.
class AggregationSwitch {
 public:
  AggregationSwitch(const SwitchLimits& limits, std::uint64_t epoch) : limits_(limits), epoch_(epoch) {}

  // Returns the reason why a job cannot be admitted, or nullopt.
  [[nodiscard]] std::optional<Refusal> objection(const JobSpec& spec) const;
  [[nodiscard]] Refusal refuse(Refusal refusal);
  // Number of slots that the job would get.
  [[nodiscard]] int slots_for(const JobSpec& spec) const;
  // Admits a job for which objection() returns nullopt; `pool` must have slots_for() slots.
  [[nodiscard]] Admission admit(const JobSpec& spec, SlotPool pool, Time now);
  [[nodiscard]] std::string place_worker(std::uint64_t session, int rank, const Address& address,
                                         const WorkerSalt& salt, std::shared_ptr<const SharedSlots> memory);
  [[nodiscard]] const SwitchJob* find(std::uint64_t session) const;
  // Returns null if there is no such job.
  std::unique_ptr<SwitchJob> end(std::uint64_t session);
  [[nodiscard]] std::vector<std::uint64_t> idle_sessions(Duration longest, Time now) const;
  [[nodiscard]] Snapshot snapshot(Time now) const;
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  [[nodiscard]] std::vector<Address> sources(std::uint16_t port) const;

  void handle(std::span<const std::byte> bytes, const Route& from, Time now, Outbox& out);
  void note_lost(std::uint64_t packets) { lost_on_sending_ += packets; }
  void note_unfiltered(int ports) { unfiltered_ports_ = ports; }

 private:
  struct Sender {
    SwitchJob* job = nullptr;
    int rank = 0;
  };

  // Completes packets whose elements are in shared memory.
  [[nodiscard]] Sender find_sender(Packet& packet, std::span<const std::byte> bytes, const Route& from, Outbox& out);
  [[nodiscard]] Sender by_address(const Address& from, std::size_t size);
  [[nodiscard]] Sender by_header(Packet& packet, std::span<const std::byte> bytes, const Route& from, Outbox& out);
  void aggregate(SwitchJob& job, int rank, const Packet& packet, const Route& from, Outbox& out);
  // Sends a sum to all workers.
  void send_sum(SwitchJob& job, const Head& head, std::uint16_t port, Outbox& out);
  // Sends a sum to these workers: in packets, or through the memory that `sharing` workers share with the switch.
  void send_in_packets(SwitchJob& job, const Head& head, std::span<const Route> to, Outbox& out);
  void send_in_memory(SwitchJob& job, const Head& head, std::span<const Route> to, std::span<const int> sharing,
                      Outbox& out);
  void send_notice(Kind kind, SwitchJob* job, const Head& head, std::span<const Route> to, Outbox& out);
  [[nodiscard]] std::optional<Refusal> check_room(const JobSpec& spec, int slots) const;
  [[nodiscard]] std::optional<Refusal> check_addresses(const JobSpec& spec) const;
  [[nodiscard]] std::uint16_t choose_port(Mode mode) const;
  void count_stray(std::size_t bytes);
  void reject_stray(Rejected cause, std::size_t bytes);

  // Cache of the last sender: consecutive packets usually come from the same worker.
  struct Latest {
    Address from;
    std::uint64_t changes = 0;  // value of changes_ at the lookup
    Sender sender;
  };

  SwitchLimits limits_;
  std::uint64_t epoch_;
  std::uint32_t last_job_ = 0;
  int slots_assigned_ = 0;
  std::size_t bytes_assigned_ = 0;
  std::uint64_t admitted_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t ended_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t lost_on_sending_ = 0;
  int unfiltered_ports_ = 0;
  PacketCounters strays_;
  std::map<std::uint64_t, std::unique_ptr<SwitchJob>> jobs_;  // by session
  std::unordered_map<std::uint32_t, SwitchJob*> by_number_;   // extended jobs, by number
  std::map<Address, Sender> by_source_;                       // kSwitchMl jobs, whose packets name neither job nor rank
  Latest latest_;                                             // last lookup in by_source_
};

}  // namespace weft::aggregation
