// Admission, worker placement and end of jobs; aggregation_switch.cpp handles packets.
#include <algorithm>
#include <set>

#include "weft/aggregation/switch/aggregation_switch.h"
#include "weft/aggregation/switch/job_validation.h"

namespace weft::aggregation {

std::optional<Refusal> AggregationSwitch::objection(const JobSpec& spec) const {
  std::optional<Refusal> refusal = check_request(spec, limits_);
  if (!refusal) refusal = check_room(spec, slots_for(spec));
  if (!refusal) refusal = check_addresses(spec);
  return refusal;
}

Refusal AggregationSwitch::refuse(Refusal refusal) {
  ++refused_;
  return refusal;
}

// Requests above the limit are reduced to it. A request for 0 slots gets all remaining slots up to the limit.
int AggregationSwitch::slots_for(const JobSpec& spec) const {
  if (spec.slots > 0) return std::min(spec.slots, limits_.slots_per_job);
  const std::size_t fit = (limits_.bytes - bytes_assigned_) / slot_bytes(spec);
  return static_cast<int>(std::min<std::size_t>(
      static_cast<std::size_t>(std::min(limits_.slots_per_job, limits_.slots - slots_assigned_)), fit));
}

Admission AggregationSwitch::admit(const JobSpec& spec, SlotPool pool, Time now) {
  const Admission admission{epoch_, ++last_job_, pool.slots(), choose_port(spec.mode),
                            spec.first_operation.value_or(0)};
  slots_assigned_ += pool.slots();
  bytes_assigned_ += pool.bytes();
  SwitchJob& job = *(jobs_[spec.session] = std::make_unique<SwitchJob>(spec, admission, std::move(pool), now));
  if (spec.mode == Mode::kExtended) by_number_[admission.job] = &job;
  for (std::size_t rank = 0; rank < spec.addresses.size() && spec.mode == Mode::kSwitchMl; ++rank) {
    by_source_[spec.addresses[rank]] = {&job, static_cast<int>(rank)};
  }
  ++admitted_;
  ++changes_;
  return admission;
}

std::optional<Refusal> AggregationSwitch::check_room(const JobSpec& spec, int slots) const {
  const int left = limits_.slots - slots_assigned_;
  if (jobs_.contains(spec.session)) {
    return Refusal{RefusalReason::kSessionTaken, "session " + std::to_string(spec.session) +
                                                     " is in use; end that job first, or pick another session"};
  }
  if (static_cast<int>(jobs_.size()) >= limits_.jobs) {
    return Refusal{RefusalReason::kTooManyJobs,
                   std::to_string(jobs_.size()) +
                       " jobs are running, which is the limit; try again when a job has ended, or raise --sessions"};
  }
  const std::size_t bytes_left = limits_.bytes - bytes_assigned_;
  const std::size_t bytes = static_cast<std::size_t>(std::max(slots, 1)) * slot_bytes(spec);
  if (bytes > bytes_left) {
    return Refusal{RefusalReason::kNoMemoryLeft,
                   std::to_string(bytes) + " bytes requested for " + std::to_string(std::max(slots, 1)) + " slots of " +
                       std::to_string(spec.packet_elements) + " elements, " + std::to_string(bytes_left) +
                       " left; request fewer slots or smaller packets, or raise --memory"};
  }
  if (slots < 1 || slots > left) {
    return Refusal{RefusalReason::kNoSlotsLeft, std::to_string(slots) + " slots requested, " + std::to_string(left) +
                                                    " left; request fewer, or try again when a job has ended"};
  }
  return std::nullopt;
}

// SwitchML's packets name neither job nor worker, so addresses must be unique.
std::optional<Refusal> AggregationSwitch::check_addresses(const JobSpec& spec) const {
  if (spec.mode != Mode::kSwitchMl) return std::nullopt;
  std::set<Address> seen;
  for (const Address& address : spec.addresses) {
    if (by_source_.contains(address) || !seen.insert(address).second) {
      return Refusal{RefusalReason::kAddressTaken,
                     address.describe() +
                         " already belongs to another worker; classic mode needs one address and port per "
                         "worker, extended mode does not"};
    }
  }
  return std::nullopt;
}

std::string AggregationSwitch::place_worker(std::uint64_t session, int rank, const Address& address,
                                            const WorkerSalt& salt, std::shared_ptr<const SharedSlots> memory) {
  const auto found = jobs_.find(session);
  if (found == jobs_.end()) return "no job has session " + std::to_string(session);
  SwitchJob& job = *found->second;
  if (rank < 0 || rank >= job.spec().workers) {
    return "rank " + std::to_string(rank) + " is out of range for a job of " + std::to_string(job.spec().workers) +
           " workers";
  }
  const auto& before = job.places()[static_cast<std::size_t>(rank)];
  const bool usable = memory != nullptr && job.spec().mode == Mode::kExtended &&
                      memory->covers(job.pool.slots(), job.spec().packet_elements);
  if (!usable) memory.reset();
  const bool same_memory = memory == nullptr || job.memory(rank) != nullptr;
  if (before == address && job.salt(rank) == salt && same_memory) return {};  // the worker only polls the control plane
  if (job.spec().mode == Mode::kSwitchMl) {
    const auto taken = by_source_.find(address);
    if (taken != by_source_.end() && (taken->second.job != &job || taken->second.rank != rank)) {
      return address.describe() +
             " already belongs to another worker; classic mode needs one address and port per worker";
    }
    if (before) by_source_.erase(*before);
    by_source_[address] = {&job, rank};
  }
  job.place(rank, address, salt, std::move(memory));
  ++changes_;
  return {};
}

const SwitchJob* AggregationSwitch::find(std::uint64_t session) const {
  const auto found = jobs_.find(session);
  return found == jobs_.end() ? nullptr : found->second.get();
}

std::unique_ptr<SwitchJob> AggregationSwitch::end(std::uint64_t session) {
  const auto found = jobs_.find(session);
  if (found == jobs_.end()) return nullptr;
  std::unique_ptr<SwitchJob> job = std::move(found->second);
  by_number_.erase(job->admission().job);
  std::erase_if(by_source_, [&](const auto& entry) { return entry.second.job == job.get(); });
  slots_assigned_ -= job->pool.slots();
  bytes_assigned_ -= job->pool.bytes();
  jobs_.erase(found);
  ++ended_;
  ++changes_;
  return job;
}

std::vector<std::uint64_t> AggregationSwitch::idle_sessions(Duration longest, Time now) const {
  std::vector<std::uint64_t> sessions;
  for (const auto& [session, job] : jobs_) {
    if (job->idle(now) > longest) sessions.push_back(session);
  }
  return sessions;
}

// Chooses the port with the fewest jobs.
std::uint16_t AggregationSwitch::choose_port(Mode mode) const {
  if (limits_.ports <= 1 || mode == Mode::kSwitchMl) return limits_.port;
  std::map<int, int> jobs;
  for (const auto& [session, job] : jobs_) ++jobs[job->admission().port];
  int best = limits_.port + 1;
  for (int port = best; port < limits_.port + limits_.ports; ++port) {
    if (jobs[port] < jobs[best]) best = port;
  }
  return static_cast<std::uint16_t>(best);
}

std::vector<Address> AggregationSwitch::sources(std::uint16_t port) const {
  std::vector<Address> sources;
  for (const auto& [session, job] : jobs_) {
    if (job->admission().port != port) continue;
    for (const auto& place : job->places()) {
      if (place) sources.push_back(*place);
    }
  }
  return sources;
}

Snapshot AggregationSwitch::snapshot(Time now) const {
  Snapshot snapshot{.epoch = epoch_,
                    .slots = limits_.slots,
                    .slots_assigned = slots_assigned_,
                    .bytes = limits_.bytes,
                    .bytes_assigned = bytes_assigned_,
                    .jobs_admitted = admitted_,
                    .jobs_refused = refused_,
                    .jobs_ended = ended_,
                    .lost_on_sending = lost_on_sending_,
                    .unfiltered_ports = unfiltered_ports_,
                    .strays = strays_,
                    .jobs = {}};
  for (const auto& [session, job] : jobs_) snapshot.jobs.push_back(job->status(now));
  return snapshot;
}

}  // namespace weft::aggregation
