#include "weft/aggregation/switch/jobs.h"

#include <random>

#include "weft/aggregation/switch/aggregation_switch.h"

namespace weft::aggregation {

Jobs::Jobs(const SwitchLimits& limits, std::uint64_t epoch)
    : limits_(limits), epoch_(epoch), switch_(std::make_unique<AggregationSwitch>(limits, epoch)) {}

Jobs::~Jobs() = default;

void Jobs::on_change(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  on_change_ = std::move(callback);
}

template <class Body>
auto Jobs::change(Body&& body) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t before = switch_->changes();
  auto result = body(*switch_);
  if (on_change_ && switch_->changes() != before) on_change_();
  return result;
}

// The pool is large and is zeroed without the lock. Other jobs may take slots in the meantime, so the number of
// available slots is checked again.
std::variant<Admission, Refusal> Jobs::admit(const JobSpec& spec, Time now) {
  std::optional<SlotPool> pool;
  while (true) {
    int slots = 0;
    auto answer = change([&](AggregationSwitch& jobs) -> std::optional<std::variant<Admission, Refusal>> {
      if (auto refusal = jobs.objection(spec)) return jobs.refuse(*std::move(refusal));
      slots = jobs.slots_for(spec);
      if (!pool || pool->slots() != slots) return std::nullopt;
      return jobs.admit(spec, *std::move(pool), now);
    });
    if (answer) return *std::move(answer);
    pool.emplace(slots, spec.workers, full_shape(spec.mode, spec.packet_elements));
  }
}

std::string Jobs::place_worker(std::uint64_t session, int rank, const Address& address, const WorkerSalt& salt,
                               std::shared_ptr<const SharedSlots> memory) {
  return change(
      [&](AggregationSwitch& jobs) { return jobs.place_worker(session, rank, address, salt, std::move(memory)); });
}

bool Jobs::shares_memory(std::uint64_t session, int rank) const {
  const std::lock_guard lock(mutex_);
  const SwitchJob* job = switch_->find(session);
  return job != nullptr && rank >= 0 && rank < job->spec().workers && job->memory(rank) != nullptr;
}

std::optional<Admission> Jobs::admission(std::uint64_t session) const {
  const std::lock_guard lock(mutex_);
  const SwitchJob* job = switch_->find(session);
  return job == nullptr ? std::nullopt : std::optional(job->admission());
}

// Frees the job's memory after the lock is released.
bool Jobs::end(std::uint64_t session) {
  return change([&](AggregationSwitch& jobs) { return jobs.end(session); }) != nullptr;
}

std::vector<std::uint64_t> Jobs::end_idle(Duration longest, Time now) {
  std::vector<std::unique_ptr<SwitchJob>> ended;
  return change([&](AggregationSwitch& jobs) {
    std::vector<std::uint64_t> sessions = jobs.idle_sessions(longest, now);
    for (const std::uint64_t session : sessions) ended.push_back(jobs.end(session));
    return sessions;
  });
}

Snapshot Jobs::snapshot(Time now) const {
  const std::lock_guard lock(mutex_);
  return switch_->snapshot(now);
}

std::uint64_t Jobs::changes() const {
  const std::lock_guard lock(mutex_);
  return switch_->changes();
}

std::vector<Address> Jobs::sources(std::uint16_t port) const {
  const std::lock_guard lock(mutex_);
  return switch_->sources(port);
}

void Jobs::handle(std::span<const std::byte> packet, const Route& from, Time now, Outbox& out) {
  const std::lock_guard lock(mutex_);
  switch_->handle(packet, from, now, out);
}

void Jobs::note_lost(std::uint64_t packets) {
  const std::lock_guard lock(mutex_);
  switch_->note_lost(packets);
}

void Jobs::note_unfiltered(int ports) {
  const std::lock_guard lock(mutex_);
  switch_->note_unfiltered(ports);
}

std::uint64_t random_epoch() {
  std::random_device random;
  std::uint64_t epoch = 0;
  while (epoch == 0) epoch = (std::uint64_t{random()} << 32) | random();
  return epoch;
}

}  // namespace weft::aggregation
