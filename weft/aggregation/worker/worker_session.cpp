#include "weft/aggregation/worker/worker_session.h"

#include <algorithm>
#include <stdexcept>

#include "weft/aggregation/transport/outbox.h"
#include "weft/aggregation/worker/error.h"
#include "weft/aggregation/worker/worker.h"
#include "weft/numeric/floating_point.h"

namespace weft::aggregation {
namespace {

void check(bool right, const std::string& what) {
  if (!right) throw std::invalid_argument("aggregation: " + what);
}

WorkerOptions checked(WorkerOptions options, const Admission& admission) {
  check(options.workers >= 1, std::to_string(options.workers) + " workers; expected at least 1");
  check(
      options.rank >= 0 && options.rank < options.workers,
      "rank " + std::to_string(options.rank) + " is out of range for " + std::to_string(options.workers) + " workers");
  check(options.window >= 1, "a window of " + std::to_string(options.window) + " packets; expected at least 1");
  check(options.packet_elements >= 1,
        std::to_string(options.packet_elements) + " elements per packet; expected at least 1");
  check(options.timeout > Duration{0}, "the timeout must be positive");
  check(admission.slots >= 1,
        "the job was admitted with " + std::to_string(admission.slots) + " slots; expected at least 1");
  options.window = std::min(options.window, admission.slots);
  if (admission.port != 0) options.switch_address.port = admission.port;
  return options;
}

WorkerIdentity identity_of(const WorkerOptions& options) {
  return {{options.mode, options.packet_elements, options.workers, options.window},
          options.rank,
          options.key,
          options.salt,
          options.switch_address,
          0,
          options.memory};
}

std::string seconds(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count() / 1000.0) + " s";
}

}  // namespace

WorkerOptions worker_options(const JobSpec& spec, int rank, const Address& switch_address) {
  WorkerOptions options;
  options.mode = spec.mode;
  options.rank = rank;
  options.workers = spec.workers;
  options.packet_elements = spec.packet_elements;
  options.window = spec.slots;
  options.switch_address = switch_address;
  options.key = spec.key;
  return options;
}

WorkerSession::WorkerSession(std::unique_ptr<Transport> transport, WorkerOptions options, const Admission& admission)
    : transport_(std::move(transport)),
      options_(checked(std::move(options), admission)),
      admission_(admission),
      worker_(std::make_unique<Worker>(identity_of(options_), admission)),
      outbox_(std::make_unique<Outbox>()) {}

WorkerSession::~WorkerSession() = default;

void WorkerSession::all_reduce(std::span<const std::int32_t> in, std::span<std::int32_t> out, Reduction reduction) {
  run(in, out, reduction);
}
void WorkerSession::all_reduce(std::span<const float> in, std::span<float> out, Reduction reduction) {
  run(in, out, reduction);
}
void WorkerSession::all_reduce(std::span<const numeric::Float16> in, std::span<numeric::Float16> out,
                               Reduction reduction) {
  run(in, out, reduction);
}
void WorkerSession::all_reduce(std::span<const numeric::BFloat16> in, std::span<numeric::BFloat16> out,
                               Reduction reduction) {
  run(in, out, reduction);
}

template <class Number>
void WorkerSession::run(std::span<const Number> in, std::span<Number> out, Reduction reduction) {
  check(in.size() == out.size(),
        "the input has " + std::to_string(in.size()) + " elements, but the output has " + std::to_string(out.size()));
  check(reduction == Reduction::kSum || !std::is_same_v<Number, std::int32_t>, "a mean of int32; only floats have one");
  throw_if_cancelled();
  progress_ = 0;
  if (options_.workers == 1) {
    if (in.data() != out.data()) std::ranges::copy(in, out.begin());
    progress_ = static_cast<std::int64_t>(in.size());
    return;
  }
  const numeric::DefaultFloatingPoint same_on_all_workers;
  SumLayout layout = identity_of(options_).layout;
  layout.reduction = reduction;
  const std::unique_ptr<SumStream> operation = make_sum(layout, in, out);
  try {
    worker_->begin(*operation, steady_now(), *outbox_);
    transport_->send(*outbox_);
    while (!worker_->done()) {
      throw_if_stuck();
      step(options_.timeout);
      progress_.store(operation->elements_done(), std::memory_order_relaxed);
    }
  } catch (...) {
    worker_->abandon();
    outbox_->clear();
    throw;
  }
  note_finished(operation->extra_rounds());
}

// Waits for packets or the next deadline and handles them.
void WorkerSession::step(Duration longest) {
  const Time now = steady_now();
  const Time until = std::min({now + longest, worker_->next_due(), next_check()});
  transport_->receive(until - now, [&](const PacketRun& run) {
    if (run.from != options_.switch_address) return;  // not the switch
    const Time arrived = steady_now();
    run.for_each([&](std::span<const std::byte> packet) {
      worker_->handle(packet, arrived, *outbox_);
      // The switch continues while this worker handles the next results.
      if (outbox_->is_full_message()) transport_->send(*outbox_);
    });
    if (outbox_->is_worth_sending()) transport_->send(*outbox_);
  });
  throw_if_cancelled();
  if (worker_->operations_differ()) {
    throw OperationsDiffer("aggregation: rank " + std::to_string(options_.rank) +
                           ": the job's workers called all_reduce with different types, lengths or reductions");
  }
  if (worker_->job_in_doubt() || steady_now() >= next_check()) check_job();
  worker_->on_time(steady_now(), *outbox_);
  transport_->send(*outbox_);
}

Time WorkerSession::next_check() const {
  if (!options_.rejoin) return Time::max();
  return std::max(worker_->last_progress(), last_check_) + options_.suspect_after;
}

void WorkerSession::check_job() {
  const Time now = steady_now();
  const bool too_soon =
      now <
      last_check_ + options_.suspect_after;  // notices may be forged, and each would cost a call of the control plane
  if (too_soon) return worker_->trust_job();
  last_check_ = now;
  const std::optional<Admission> admission = options_.rejoin ? options_.rejoin() : std::nullopt;
  throw_if_cancelled();
  if (!admission) {
    throw JobLost("aggregation: rank " + std::to_string(options_.rank) + ": the switch at " +
                  options_.switch_address.describe() + " no longer knows this job" +
                  (options_.rejoin ? " and did not admit it again" : ""));
  }
  worker_->trust_job();
  if (*admission == admission_) return;
  check(admission->slots >= options_.window, "the restarted switch grants " + std::to_string(admission->slots) +
                                                 " slots; this job uses " + std::to_string(options_.window));
  admission_ = *admission;
  if (admission_.port != 0) options_.switch_address.port = admission_.port;  // the job may get another port
  worker_->rejoin(admission_, steady_now(), *outbox_);
  const std::lock_guard lock(mutex_);
  ++statistics_.rejoins;
}

void WorkerSession::linger(Duration longest) {
  throw_if_cancelled();
  if (options_.workers == 1) return;
  const Time end = steady_now() + longest;
  if (steady_now() >= next_check()) check_job();
  while (worker_->replaying() && steady_now() < end) step(end - steady_now());
}

void WorkerSession::throw_if_stuck() const {
  const Duration waited = steady_now() - worker_->last_progress();
  if (waited < options_.timeout) return;
  throw SwitchTimeout("aggregation: rank " + std::to_string(options_.rank) + ": no sum from the switch at " +
                      options_.switch_address.describe() + "; timed out after " + seconds(waited) +
                      ": a worker is missing or the switch is unreachable");
}

void WorkerSession::throw_if_cancelled() const {
  if (!cancelled_) return;
  const std::lock_guard lock(mutex_);
  throw Cancelled("aggregation: cancelled: " + cancel_reason_);
}

void WorkerSession::cancel(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return;
    cancel_reason_ = reason;
    cancelled_ = true;
  }
  transport_->wake();
}

void WorkerSession::note_finished(std::int64_t extra_rounds) {
  const WorkerCounts& counts = worker_->counts();
  const std::lock_guard lock(mutex_);
  ++statistics_.operations;
  statistics_.packets_sent = counts.sent;
  statistics_.packets_received = counts.received;
  statistics_.retransmissions = counts.retransmissions;
  statistics_.rejected = counts.rejected;
  statistics_.extra_rounds += static_cast<std::uint64_t>(extra_rounds);
  statistics_.round_trip = worker_->round_trip();
}

std::uint8_t WorkerSession::operation_number() const { return worker_->operation_number(); }

WorkerStatistics WorkerSession::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace weft::aggregation
