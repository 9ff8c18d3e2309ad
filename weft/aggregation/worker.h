// A worker as a state machine: results in, contributions out; no sockets, threads or clocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/aggregation/job.h"
#include "weft/aggregation/operation.h"
#include "weft/aggregation/outbox.h"
#include "weft/aggregation/overtaking.h"
#include "weft/aggregation/round_trip.h"
#include "weft/aggregation/worker_slot.h"

namespace weft::aggregation {

struct WorkerIdentity {
  Layout layout;  // its window: slots used
  int rank = 0;
  PacketKey key{};
  Address switch_address;
  std::uint64_t first_turn = 0;  // the first packets' sequence; the same for all workers of a job
};

struct WorkerCounts {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t rejected = 0;
};

class Worker {
 public:
  Worker(const WorkerIdentity& identity, const Admission& admission, const RetransmissionOptions& retransmission = {});

  // Sends the first packet of every slot. The operation lives until done().
  void begin(Operation& operation, Time now, Outbox& out);
  // A result completes a turn and sends the slot's next packet; anything else is counted and dropped.
  void handle(std::span<const std::byte> bytes, Time now, Outbox& out);
  // Sends again what later packets have overtaken, and what was not answered in time.
  void on_time(Time now, Outbox& out);
  // When on_time() has something to do, if no result comes before.
  [[nodiscard]] Time next_due() const { return next_due_; }

  [[nodiscard]] bool done() const { return waiting_ == 0; }
  // Some last packets must still be summed for a peer's sake; see rejoin().
  [[nodiscard]] bool replaying() const;

  // The switch began anew: every slot sends its last packet again, and those that wait also the one before. Workers are
  // at most one turn apart in a slot, so the turn that the slowest misses is among what everybody sends.
  void rejoin(const Admission& admission, Time now, Outbox& out);
  // Forgets the running operation, whatever became of it.
  void abandon();

  // A notice says that the switch does not know the job. Only a hint: anybody could send it.
  [[nodiscard]] bool job_in_doubt() const { return job_in_doubt_; }
  void trust_job() { job_in_doubt_ = false; }
  // The switch says, with the job's tag, that the workers called different operations.
  [[nodiscard]] bool operations_differ() const { return operations_differ_; }

  // Of the operation begun last, in SwitchML's header.
  [[nodiscard]] std::uint8_t operation_number() const {
    return static_cast<std::uint8_t>(first_operation_ + operations_ - 1);
  }
  [[nodiscard]] const WorkerCounts& counts() const { return counts_; }
  [[nodiscard]] Duration round_trip() const { return round_trip_.smoothed(); }
  [[nodiscard]] Time last_progress() const { return last_progress_; }

 private:
  void send_next(int slot, Time now, Outbox& out);
  void send_again(WorkerSlot& slot, Time now, Outbox& out);
  void send_overtaken(Time now, Outbox& out);
  void transmit(const WorkerSlot::SentPacket& packet, Outbox& out);
  void readdress(WorkerSlot::SentPacket& packet);
  [[nodiscard]] Head head_of(int slot, std::uint64_t sequence) const;
  [[nodiscard]] bool is_ours(const Packet& packet, std::span<const std::byte> bytes) const;
  void take_result(const Packet& packet, Time now, Outbox& out);
  void end_silence(Time now);
  void take_notice(const Packet& packet);
  [[nodiscard]] Time due(std::size_t slot) const;

  WorkerIdentity identity_;
  Admission admission_;
  RetransmissionOptions options_;
  RoundTrip round_trip_;
  std::vector<WorkerSlot> slots_;
  std::unique_ptr<std::byte[]> packets_;  // of the slots
  Overtaking overtaking_;
  Operation* operation_ = nullptr;
  std::uint64_t operations_ = 0;  // begun
  std::uint8_t first_operation_;
  std::uint32_t fingerprint_ = 0;
  int waiting_ = 0;  // slots
  bool job_in_doubt_ = false;
  bool operations_differ_ = false;
  bool silent_ = false;         // no result for longer than one should take
  std::size_t next_probe_ = 0;  // slot
  Time next_due_{0};
  Time last_progress_{0};
  WorkerCounts counts_;
};

}  // namespace weft::aggregation
