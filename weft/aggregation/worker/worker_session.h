// Blocking interface of a worker: sums vectors over all workers through a switch and survives restarts of the switch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "weft/aggregation/config/job.h"
#include "weft/aggregation/packet/shared_slots.h"
#include "weft/aggregation/packet/time.h"
#include "weft/aggregation/transport/transport.h"
#include "weft/aggregation/worker/sum_stream.h"
#include "weft/numeric/half.h"  // number formats only, no MPI

namespace weft::aggregation {

class Outbox;
class Worker;

struct WorkerOptions {
  Mode mode = Mode::kExtended;
  int rank = 0;
  int workers = 1;
  int packet_elements = 256;                                // as in the JobSpec
  int window = 256;                                         // maximum packets in flight; limited to Admission::slots
  Address switch_address{};                                 // Admission::port replaces its port unless that is 0
  SessionKey key{};                                         // kExtended
  WorkerSalt salt{};                                        // kExtended; as registered with the switch
  SharedSlots memory{};                                     // offered to the switch; must outlive the session
  Duration timeout = std::chrono::seconds(300);             // an operation fails after this time without progress
  Duration suspect_after = std::chrono::milliseconds(500);  // `rejoin` is called after this time without progress

  // Asks the control plane whether the job still exists. Returns the same Admission if it does, a new one if the job
  // was admitted again (all workers must get the same), or nullopt if that is not possible; the operation then throws
  // JobLost. all_reduce() calls it at most once per suspect_after. If it is empty, a lost job is an error immediately.
  std::function<std::optional<Admission>()> rejoin{};
};

// Options of a worker of the job `spec`. The caller adds timeouts and `rejoin`.
[[nodiscard]] WorkerOptions worker_options(const JobSpec& spec, int rank, const Address& switch_address);

struct WorkerStatistics {
  std::uint64_t operations = 0;
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t rejected = 0;      // packets that were not results of this job: malformed, forged, duplicate
  std::uint64_t extra_rounds = 0;  // packets sent because blocks span too many powers of two for one round
  std::uint64_t rejoins = 0;
  Duration round_trip{};  // smoothed
};

// All workers call the same operations in the same order, as with any collective. Not thread-safe, except for cancel(),
// progress() and statistics().
class WorkerSession {
 public:
  // Throws std::invalid_argument if an option is out of range.
  WorkerSession(std::unique_ptr<Transport> transport, WorkerOptions options, const Admission& admission);
  ~WorkerSession();
  WorkerSession(const WorkerSession&) = delete;
  WorkerSession& operator=(const WorkerSession&) = delete;

  // Collective: sums or averages over all workers. `in` and `out` are identical or do not overlap. int32 sums are exact
  // and wrap; for floats, |error| <= (workers / 2) * quantum plus one rounding (docs/aggregation-protocol.md). Throws
  // std::invalid_argument (lengths differ, mean of int32; before any packet is sent), SwitchTimeout, Cancelled,
  // JobLost, OperationsDiffer (reduction, type or length differ between the workers). After an exception, `out` holds
  // part of the result and the workers are out of step: end the job.
  void all_reduce(std::span<const std::int32_t> in, std::span<std::int32_t> out, Reduction reduction = Reduction::kSum);
  void all_reduce(std::span<const float> in, std::span<float> out, Reduction reduction = Reduction::kSum);
  void all_reduce(std::span<const numeric::Float16> in, std::span<numeric::Float16> out,
                  Reduction reduction = Reduction::kSum);
  void all_reduce(std::span<const numeric::BFloat16> in, std::span<numeric::BFloat16> out,
                  Reduction reduction = Reduction::kSum);

  // Timeout of later operations. It may differ between workers.
  void set_timeout(Duration timeout) { options_.timeout = timeout; }

  // Between operations: serves peers that missed the last result because the switch restarted, for `longest` at most.
  // Returns immediately if no peer needs it. Throws like all_reduce().
  void linger(Duration longest);

  // Makes the running and all later operations throw Cancelled{reason}. Thread-safe.
  void cancel(const std::string& reason);

  // Number of elements of the running operation whose sum has arrived. Thread-safe.
  [[nodiscard]] std::int64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  // kSwitchMl: number of the current or last operation in packets. When a control plane admits the job again after a
  // restart of the switch, it passes the number before it as JobSpec::first_operation.
  [[nodiscard]] std::uint8_t operation_number() const;
  // State after the last finished operation. Thread-safe.
  [[nodiscard]] WorkerStatistics statistics() const;

 private:
  template <class Number>
  void run(std::span<const Number> in, std::span<Number> out, Reduction reduction);
  void step(Duration longest);
  [[nodiscard]] Time next_check() const;
  void check_job();
  void throw_if_stuck() const;
  void throw_if_cancelled() const;
  void note_finished(std::int64_t extra_rounds);

  std::unique_ptr<Transport> transport_;
  WorkerOptions options_;
  Admission admission_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Outbox> outbox_;
  Time last_check_{0};  // time of the last call of `rejoin`
  std::atomic<std::int64_t> progress_ = 0;
  std::atomic<bool> cancelled_ = false;
  mutable std::mutex mutex_;  // guards the members below
  std::string cancel_reason_;
  WorkerStatistics statistics_;
};

}  // namespace weft::aggregation
