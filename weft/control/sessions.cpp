#include "weft/control/sessions.h"

#include <algorithm>
#include <functional>

#include "weft/aggregation/switch/job_validation.h"

namespace weft::control {
namespace {

using aggregation::Admission;
using aggregation::Mode;

std::string named(const std::string& job) { return job.empty() ? "(unnamed)" : "'" + job + "'"; }

aggregation::JobSpec spec_of(const SessionRequest& request, int slots) {
  aggregation::JobSpec spec;
  spec.name = request.job;
  spec.session = request.session;
  spec.mode = request.mode;
  spec.workers = static_cast<int>(request.workers);
  spec.packet_elements = request.packet_elements;
  spec.slots = slots;
  spec.first_operation = request.first_operation;
  spec.tsi_is_little_endian = request.is_switchml_client;
  if (request.key != nullptr) spec.key = aggregation::derive_session_key(request.key->secret, request.session);
  return spec;
}

// Holder of a quota: a job with a key; without keys a host or, on this machine, a job name.
std::string owner_of(const SessionRequest& request) {
  if (request.key != nullptr || request.host == 0) return "job " + named(request.job);
  return "host " + aggregation::Address{request.host, 0}.describe();
}

Refused refused(const aggregation::Refusal& refusal) {
  using Reason = aggregation::RefusalReason;
  const bool no_room = refusal.reason == Reason::kTooManyJobs || refusal.reason == Reason::kNoSlotsLeft ||
                       refusal.reason == Reason::kNoMemoryLeft;
  return {refusal.text, no_room};
}

std::string objection(const SessionRequest& request) {
  if (request.workers < 1 || request.workers > 65535 || request.rank >= request.workers) {
    return "rank " + std::to_string(request.rank) + " of " + std::to_string(request.workers) +
           " workers is invalid; expected a rank below the number of workers, and 1 to 65535 workers";
  }
  if (request.key != nullptr && request.key->workers != 0 && request.key->workers != request.workers) {
    return "job " + named(request.job) + " requires " + std::to_string(request.key->workers) + " workers, got " +
           std::to_string(request.workers);
  }
  return "";
}

}  // namespace

std::variant<Placed, Refused> Sessions::join(const SessionRequest& request) {
  if (const std::string reason = objection(request); !reason.empty()) return Refused{reason, false};
  const std::lock_guard lock(mutex_);
  forget_ended();
  const auto found = records_.find(request.session);
  if (found == records_.end()) return create(request);
  Record& record = found->second;
  if (record.job != request.job)
    return Refused{"the session belongs to another job; use the same job name on all workers", false};
  if (record.workers != request.workers || record.packet_elements != request.packet_elements ||
      record.mode != request.mode) {
    return Refused{"the other workers of this session set it up for " + std::to_string(record.workers) +
                       " workers and packets of " + std::to_string(record.packet_elements) +
                       " elements, this one for " + std::to_string(request.workers) + " and " +
                       std::to_string(request.packet_elements) +
                       ", or another packet format; use the same configuration on all workers",
                   false};
  }
  return place(request, record, *jobs_.admission(request.session));
}

Sessions::Answer Sessions::create(const SessionRequest& request) {
  clear_old_state(request);
  std::size_t evicted = make_room_in_share(request);
  const auto share = quota(request);
  if (const auto* refused = std::get_if<Refused>(&share)) return *refused;
  const int slots = std::get<int>(share);
  evicted += make_room(request, slots);
  const auto answer = jobs_.admit(spec_of(request, slots), aggregation::steady_now());
  if (const auto* refusal = std::get_if<aggregation::Refusal>(&answer)) return refused(*refusal);
  const auto& admission = std::get<Admission>(answer);
  const std::size_t bytes =
      static_cast<std::size_t>(admission.slots) * aggregation::slot_bytes(spec_of(request, admission.slots));
  Record record{request.job,
                owner_of(request),
                bytes,
                request.workers,
                request.packet_elements,
                request.mode,
                admission.slots,
                {},
                {}};
  Answer placed = place(request, record, admission);
  if (auto* place = std::get_if<Placed>(&placed)) {
    place->evicted = evicted;
    records_.emplace(request.session, std::move(record));
  } else {
    jobs_.end(request.session);
  }
  return placed;
}

Sessions::Answer Sessions::place(const SessionRequest& request, Record& record, const Admission& admission) {
  const std::string reason = jobs_.place_worker(request.session, static_cast<int>(request.rank), request.address,
                                                request.salt, request.memory);
  if (!reason.empty()) return Refused{reason, false};
  const auto [place, first] = record.places.try_emplace(request.rank, request.address);
  const bool moved = !(place->second == request.address);
  place->second = request.address;
  const bool back = record.left.erase(request.rank) > 0;
  Admission own = admission;
  own.shared = jobs_.shares_memory(request.session, static_cast<int>(request.rank));
  return Placed{own, first || moved || back};
}

// Remaining quota of the owner, which all of its sessions share.
std::variant<int, Refused> Sessions::quota(const SessionRequest& request) const {
  const aggregation::SwitchLimits& limits = jobs_.limits();
  const JobKey share = request.key != nullptr ? *request.key : share_without_key(limits);
  const std::string owner = owner_of(request);
  std::int64_t slots = 0;
  std::int64_t sessions = 0;
  std::size_t bytes = 0;
  for (const auto& [session, record] : records_) {
    if (record.owner != owner) continue;
    slots += record.slots;
    bytes += record.bytes;
    ++sessions;
  }
  const auto all_of = [&](std::int64_t quota, const char* what) {
    return Refused{owner + " uses all of its " + std::to_string(quota) + " " + what + "; end one of its sessions, or " +
                       (request.key != nullptr ? "raise its quota in the keys file"
                                               : "raise the limits of the switch, which is shared without keys"),
                   true};
  };
  if (share.sessions != 0 && sessions >= share.sessions) return all_of(share.sessions, "sessions");
  if (share.slots == 0) return request.slots;
  const std::int64_t left = share.slots - slots;
  if (left < 1) return all_of(share.slots, "slots");
  const std::int64_t most = std::min<std::int64_t>(left, limits.slots_per_job);
  const std::int64_t wanted = request.slots > 0 ? std::min<std::int64_t>(most, request.slots) : most;
  const std::size_t memory = limits.bytes / 2;  // without a key; one session may always have more
  const std::size_t more = static_cast<std::size_t>(wanted) * aggregation::slot_bytes(spec_of(request, 0));
  if (request.key == nullptr && sessions > 0 && bytes + more > memory) {
    return all_of(static_cast<std::int64_t>(memory), "bytes for slots");
  }
  return request.slots == 0 && left >= limits.slots_per_job ? 0 : static_cast<int>(wanted);  // 0: as many as possible
}

std::vector<aggregation::JobStatus> Sessions::evictable() const {
  auto all = jobs_.snapshot(aggregation::steady_now()).jobs;
  std::erase_if(all, [&](const auto& job) { return job.idle <= evictable_; });
  std::ranges::sort(all, std::ranges::greater{}, &aggregation::JobStatus::idle);
  return all;
}

void Sessions::end(std::uint64_t session) {
  jobs_.end(session);
  records_.erase(session);
}

std::size_t Sessions::make_room_in_share(const SessionRequest& request) {
  if (std::holds_alternative<int>(quota(request))) return 0;
  const auto candidates = evictable();
  const std::string owner = owner_of(request);
  const auto found = std::ranges::find_if(candidates, [&](const aggregation::JobStatus& job) {
    const auto record = records_.find(job.session);
    return record != records_.end() && record->second.owner == owner;
  });
  if (found == candidates.end()) return 0;
  end(found->session);
  return 1;
}

std::size_t Sessions::make_room(const SessionRequest& request, int slots) {
  const aggregation::SwitchLimits& limits = jobs_.limits();
  const aggregation::JobSpec spec = spec_of(request, slots);
  if (aggregation::check_request(spec, limits)) return 0;  // the request will be refused
  const auto now = jobs_.snapshot(aggregation::steady_now());
  int left = now.slots - now.slots_assigned;
  std::size_t bytes = now.bytes - now.bytes_assigned;
  auto sessions = static_cast<int>(now.jobs.size());
  std::vector<std::uint64_t> ending;
  const int wanted = std::clamp(slots, 1, limits.slots_per_job);
  const auto enough = [&] {
    return sessions < limits.jobs && left >= wanted &&
           bytes >= static_cast<std::size_t>(wanted) * aggregation::slot_bytes(spec);
  };
  for (const auto& job : evictable()) {
    if (enough()) break;
    ending.push_back(job.session);
    left += job.slots;
    bytes += job.bytes;
    --sessions;
  }
  if (!enough()) return 0;
  for (const std::uint64_t session : ending) end(session);
  return ending.size();
}

// SwitchML's packets carry no session, so a new session of a host replaces its old one, whose workers have exited.
void Sessions::clear_old_state(const SessionRequest& request) {
  if (request.mode != Mode::kSwitchMl || request.rank != 0 || request.address.port != 0) return;
  std::erase_if(records_, [&](const auto& entry) {
    const Record& record = entry.second;
    const bool here = std::ranges::any_of(record.places,
                                          [&](const auto& place) { return place.second.ipv4 == request.address.ipv4; });
    const bool replaced = record.mode == Mode::kSwitchMl && record.job == request.job && here;
    if (replaced) jobs_.end(entry.first);
    return replaced;
  });
}

void Sessions::forget_ended() {
  std::erase_if(records_, [&](const auto& entry) { return !jobs_.admission(entry.first).has_value(); });
}

bool Sessions::leave(std::uint64_t session, std::uint32_t rank, const std::string& job) {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(session);
  if (found == records_.end() || found->second.job != job || rank >= found->second.workers) return false;
  found->second.left.insert(rank);
  if (found->second.left.size() < found->second.workers) return false;
  jobs_.end(session);
  records_.erase(found);
  return true;
}

std::size_t Sessions::reclaim(aggregation::Duration longest) {
  const std::lock_guard lock(mutex_);
  const auto ended = jobs_.end_idle(longest, aggregation::steady_now());
  forget_ended();
  return ended.size();
}

}  // namespace weft::control
