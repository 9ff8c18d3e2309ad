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

#include "weft/aggregation/admitted_job.h"
#include "weft/aggregation/jobs.h"
#include "weft/aggregation/outbox.h"

namespace weft::aggregation {

// Not thread-safe; Jobs is its front. What its functions do is said there.
class AggregationSwitch {
 public:
  AggregationSwitch(const SwitchLimits& limits, std::uint64_t epoch) : limits_(limits), epoch_(epoch) {}

  // Why a job cannot be admitted; nothing if it can.
  [[nodiscard]] std::optional<Refusal> objection(const JobSpec& spec) const;
  [[nodiscard]] Refusal refuse(Refusal refusal);
  // How many it would get.
  [[nodiscard]] int slots_for(const JobSpec& spec) const;
  // One that nothing speaks against, with a pool of so many slots.
  [[nodiscard]] Admission admit(const JobSpec& spec, SlotPool pool, Time now);
  [[nodiscard]] std::string place_worker(std::uint64_t session, int rank, const Address& address);
  [[nodiscard]] const AdmittedJob* find(std::uint64_t session) const;
  // Null if there is none.
  std::unique_ptr<AdmittedJob> end(std::uint64_t session);
  [[nodiscard]] std::vector<std::uint64_t> idle_sessions(Duration longest, Time now) const;
  [[nodiscard]] Snapshot snapshot(Time now) const;
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  [[nodiscard]] std::vector<Address> sources(std::uint16_t port) const;

  void handle(std::span<const std::byte> bytes, const Route& from, Time now, Outbox& out);
  void note_lost(std::uint64_t packets) { lost_on_sending_ += packets; }
  void note_unfiltered(int ports) { unfiltered_ports_ = ports; }

 private:
  struct Sender {
    AdmittedJob* job = nullptr;
    int rank = 0;
  };

  [[nodiscard]] Sender find_sender(const Packet& packet, std::span<const std::byte> bytes, const Route& from,
                                   Outbox& out);
  [[nodiscard]] Sender by_address(const Address& from, std::size_t size);
  [[nodiscard]] Sender by_header(const Packet& packet, std::span<const std::byte> bytes, const Route& from,
                                 Outbox& out);
  void aggregate(AdmittedJob& job, int rank, const Packet& packet, const Route& from, Outbox& out);
  void send_sum(AdmittedJob& job, const Head& head, std::span<const Route> to, Outbox& out);
  void send_notice(Kind kind, AdmittedJob* job, const Head& head, std::span<const Route> to, Outbox& out);
  [[nodiscard]] std::optional<Refusal> check_room(const JobSpec& spec, int slots) const;
  [[nodiscard]] std::optional<Refusal> check_addresses(const JobSpec& spec) const;
  [[nodiscard]] std::uint16_t choose_port(Mode mode) const;
  void count_stray(std::size_t bytes);
  void reject_stray(Rejected cause, std::size_t bytes);

  // Packets come in runs.
  struct Latest {
    Address from;
    std::uint64_t changes = 0;  // found after so many
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
  Counters strays_;
  std::map<std::uint64_t, std::unique_ptr<AdmittedJob>> jobs_;  // by session
  std::unordered_map<std::uint32_t, AdmittedJob*> by_number_;   // extended
  std::map<Address, Sender> by_source_;                         // SwitchML's format names neither job nor rank
  Latest latest_;                                               // of by_source_
};

}  // namespace weft::aggregation
