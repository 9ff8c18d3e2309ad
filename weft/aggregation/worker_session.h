// One worker's end of a job: sums vectors over all workers through a switch, blocking, and survives the switch's
// restart.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "weft/aggregation/job.h"
#include "weft/aggregation/time.h"
#include "weft/aggregation/transport.h"
#include "weft/mpi/half.h"  // only the number formats: no MPI in it

namespace weft::aggregation {

class Outbox;
class Worker;

struct WorkerOptions {
  Mode mode = Mode::kExtended;
  int rank = 0;
  int workers = 1;
  int packet_elements = 256;                     // as admitted
  int window = 256;                              // packets under way at most; cut to Admission::slots
  Address switch_address{};                      // its port is replaced by Admission::port where that is not 0
  PacketKey key{};                               // kExtended
  Duration timeout = std::chrono::seconds(300);  // without any progress of an operation
  Duration suspect_after = std::chrono::milliseconds(500);  // without progress: ask `rejoin` whether the switch lives

  // Asks the control plane whether the job still stands: the same Admission if so, a new one after the job was admitted
  // anew (by whichever worker came first; all must get the same), nothing if it cannot be: the operation then throws
  // JobLost. Called from inside all_reduce(), at most once per suspect_after. Without it a lost job is an error at
  // once.
  std::function<std::optional<Admission>()> rejoin{};
};

// A worker of a job as it was asked for and admitted; the caller adds timeouts and what to do about a lost job.
[[nodiscard]] WorkerOptions worker_options(const JobSpec& spec, int rank, const Address& switch_address);

struct WorkerStatistics {
  std::uint64_t operations = 0;
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t rejected = 0;      // packets that were not results of this job: garbage, forged, duplicates
  std::uint64_t extra_rounds = 0;  // packets sent because a block's numbers span too many powers of two for one
  std::uint64_t rejoins = 0;
  Duration round_trip{};  // smoothed, as measured
};

// All workers call the same operations in the same order, as with any collective. One thread at a time, but for
// cancel(), progress() and statistics().
class WorkerSession {
 public:
  // Throws std::invalid_argument naming the option that is out of range.
  WorkerSession(std::unique_ptr<Transport> transport, WorkerOptions options, const Admission& admission);
  ~WorkerSession();
  WorkerSession(const WorkerSession&) = delete;
  WorkerSession& operator=(const WorkerSession&) = delete;

  // The sum over all workers; `in` and `out` are the same memory or do not overlap. int32 is exact (and wraps like any
  // int32 sum); floats: see docs/aggregation.md, |error| <= (workers / 2) * quantum and one rounding of the result.
  // Throws std::invalid_argument (lengths differ, before anything is sent), SwitchTimeout, Cancelled, JobLost,
  // OperationsDiffer. After a throw `out` holds part of the result and the job's workers are out of step: end the job.
  void all_reduce(std::span<const std::int32_t> in, std::span<std::int32_t> out);
  void all_reduce(std::span<const float> in, std::span<float> out);
  void all_reduce(std::span<const mpi::Float16> in, std::span<mpi::Float16> out);
  void all_reduce(std::span<const mpi::BFloat16> in, std::span<mpi::BFloat16> out);

  // Of the operations that follow; those of all workers need not be alike.
  void set_timeout(Duration timeout) { options_.timeout = timeout; }

  // For a worker that is between operations: stays in touch for `longest` at most, so that peers that missed the last
  // result when the switch died can still get it. Returns at once where nothing is needed. Throws as all_reduce().
  void linger(Duration longest);

  // Ends the running operation with Cancelled{reason}, and every later one. From any thread.
  void cancel(const std::string& reason);

  // Elements of the running operation whose sum is here. From any thread.
  [[nodiscard]] std::int64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  // kSwitchMl: the number that the present operation, or the last one, has in packets. A control plane that admits the
  // job anew after a restart of the switch passes the number before it as JobSpec::first_operation. For rejoin().
  [[nodiscard]] std::uint8_t operation_number() const;
  // From any thread; of the last finished operation.
  [[nodiscard]] WorkerStatistics statistics() const;

 private:
  template <class Number>
  void run(std::span<const Number> in, std::span<Number> out);
  void turn(Duration longest);
  [[nodiscard]] Time next_question() const;
  void ask_whether_job_stands();
  void throw_if_stuck() const;
  void throw_if_cancelled() const;
  void note_finished(std::int64_t extra_rounds);

  std::unique_ptr<Transport> transport_;
  WorkerOptions options_;
  Admission admission_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Outbox> outbox_;
  Time asked_{0};  // whether the job stands, last
  std::atomic<std::int64_t> progress_ = 0;
  std::atomic<bool> cancelled_ = false;
  mutable std::mutex mutex_;  // of what follows
  std::string cancel_reason_;
  WorkerStatistics statistics_;
};

}  // namespace weft::aggregation
