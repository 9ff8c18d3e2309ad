// State machine of a worker: results in, contributions out; no sockets, threads or clocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/aggregation/config/job.h"
#include "weft/aggregation/packet/packet_mac.h"
#include "weft/aggregation/packet/shared_slots.h"
#include "weft/aggregation/transport/outbox.h"
#include "weft/aggregation/worker/loss_detector.h"
#include "weft/aggregation/worker/round_trip.h"
#include "weft/aggregation/worker/sum_stream.h"
#include "weft/aggregation/worker/worker_slot.h"

namespace weft::aggregation {

struct WorkerIdentity {
  SumLayout layout;  // the window is the number of slots used
  int rank = 0;
  SessionKey key{};
  WorkerSalt salt{};
  Address switch_address;
  std::uint64_t first_turn = 0;  // sequence of the first packets; identical on all workers of a job
  SharedSlots memory{};          // offered to the switch; used if the admission accepts it
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

  // Sends the first packet of every slot. `operation` must live until done().
  void begin(SumStream& operation, Time now, Outbox& out);
  // Handles a received packet. A result completes a turn and sends the slot's next packet; all others are counted and
  // dropped.
  void handle(std::span<const std::byte> bytes, Time now, Outbox& out);
  // Retransmits packets that are lost or not answered in time.
  void on_time(Time now, Outbox& out);
  // Time of the next on_time() call, if no result arrives earlier.
  [[nodiscard]] Time next_due() const { return next_due_; }

  [[nodiscard]] bool done() const { return waiting_ == 0; }
  // Whether peers may still need this worker's last packets; see rejoin().
  [[nodiscard]] bool replaying() const;

  // Continues after a restart of the switch. Every slot repeats its last packet; a slot that waits for a result
  // also repeats the packet before it. Workers are at most one turn apart in a slot, so these packets include the turn
  // that the slowest worker misses.
  void rejoin(const Admission& admission, Time now, Outbox& out);
  // Discards the running operation.
  void abandon();

  // Whether a notice claims that the switch does not know the job. It is only a hint, because it is not authenticated.
  [[nodiscard]] bool job_in_doubt() const { return job_in_doubt_; }
  void trust_job() { job_in_doubt_ = false; }
  // Whether an authenticated notice of the switch reports that the workers called different operations.
  [[nodiscard]] bool operations_differ() const { return operations_differ_; }

  // Returns the number of the latest operation as SwitchML's packet header stores it.
  [[nodiscard]] std::uint8_t operation_number() const {
    return static_cast<std::uint8_t>(first_operation_ + operations_ - 1);
  }
  [[nodiscard]] const WorkerCounts& counts() const { return counts_; }
  [[nodiscard]] Duration round_trip() const { return round_trip_.smoothed(); }
  [[nodiscard]] Time last_progress() const { return last_progress_; }

 private:
  void send_next(int slot, Time now, Outbox& out);
  void send_again(WorkerSlot& slot, Time now, Outbox& out);
  void send_lost(Time now, Outbox& out);
  void transmit(const WorkerSlot::SentPacket& packet, Outbox& out);
  void use_admission(const Admission& admission);
  void seal(const WorkerSlot::SentPacket& packet);
  void reseal(WorkerSlot::SentPacket& packet);
  // The packet's elements in shared memory; empty if they are in the packet.
  [[nodiscard]] std::span<std::byte> shared_elements(const WorkerSlot::SentPacket& packet) const;
  void unshare(WorkerSlot::SentPacket& packet);
  [[nodiscard]] Head head_of(int slot, std::uint64_t sequence) const;
  [[nodiscard]] bool is_ours(const Packet& packet, std::span<const std::byte> bytes);
  void take_result(const Packet& packet, Time now, Outbox& out);
  void end_silence(Time now);
  void take_notice(const Packet& packet);
  [[nodiscard]] Time due(std::size_t slot) const;

  WorkerIdentity identity_;
  Admission admission_;
  PacketMac own_mac_;     // authenticates contributions
  PacketMac switch_mac_;  // verifies results and notices
  RetransmissionOptions options_;
  RoundTrip round_trip_;
  std::vector<WorkerSlot> slots_;
  std::unique_ptr<std::byte[]> packets_;  // memory of the slots' packets
  LossDetector loss_detector_;
  SumStream* operation_ = nullptr;
  std::uint64_t operations_ = 0;  // number of operations started
  std::uint8_t first_operation_;
  std::uint32_t fingerprint_ = 0;
  int waiting_ = 0;      // number of slots that wait for a result
  bool shares_ = false;  // whether the elements of new packets are in shared memory
  bool job_in_doubt_ = false;
  bool operations_differ_ = false;
  bool next_operation_differs_ = false;
  bool silent_ = false;         // no result has arrived within the expected time
  std::size_t next_probe_ = 0;  // slot of the next probe
  Time next_due_{0};
  Time last_progress_{0};
  WorkerCounts counts_;
};

}  // namespace weft::aggregation
