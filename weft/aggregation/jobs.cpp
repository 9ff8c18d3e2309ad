#include "weft/aggregation/jobs.h"

#include <random>

#include "weft/aggregation/aggregation_switch.h"

namespace weft::aggregation {

Jobs::Jobs(const SwitchLimits& limits, std::uint64_t epoch)
    : limits_(limits), epoch_(epoch), switch_(std::make_unique<AggregationSwitch>(limits, epoch)) {}

Jobs::~Jobs() = default;

std::variant<Admission, Refusal> Jobs::admit(const JobSpec& spec, Time now) {
  const std::lock_guard lock(mutex_);
  return switch_->admit(spec, now);
}

std::string Jobs::place_worker(std::uint64_t session, int rank, const Address& address) {
  const std::lock_guard lock(mutex_);
  return switch_->place_worker(session, rank, address);
}

std::optional<Admission> Jobs::admission(std::uint64_t session) const {
  const std::lock_guard lock(mutex_);
  const AdmittedJob* job = switch_->find(session);
  return job == nullptr ? std::nullopt : std::optional(job->admission());
}

bool Jobs::end(std::uint64_t session) {
  const std::lock_guard lock(mutex_);
  return switch_->end(session);
}

std::vector<std::uint64_t> Jobs::end_idle(Duration longest, Time now) {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> sessions = switch_->idle_sessions(longest, now);
  for (const std::uint64_t session : sessions) switch_->end(session);
  return sessions;
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

std::uint64_t random_epoch() {
  std::random_device random;
  std::uint64_t epoch = 0;
  while (epoch == 0) epoch = (std::uint64_t{random()} << 32) | random();
  return epoch;
}

}  // namespace weft::aggregation
