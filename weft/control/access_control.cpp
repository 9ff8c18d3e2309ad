#include "weft/control/access_control.h"

#include <utility>

namespace weft::control {

AccessControl::AccessControl(JobKeys keys, bool open, EventCounters& counters)
    : keys_(std::make_shared<const JobKeys>(std::move(keys))), open_(open), counters_(counters) {}

void AccessControl::set_keys(JobKeys keys) {
  const std::lock_guard lock(mutex_);
  keys_ = std::make_shared<const JobKeys>(std::move(keys));
}

std::shared_ptr<const JobKeys> AccessControl::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

Decision AccessControl::refuse(Event event, std::string reason) {
  counters_.add(event);
  return {Decision::Kind::kRefuse, "", std::move(reason), nullptr};
}

Decision AccessControl::challenge(std::string reason, Nonces::Clock::time_point now) {
  counters_.add(Event::kChallenged);
  return {Decision::Kind::kChallenge, nonces_.issue(now), std::move(reason), nullptr};
}

Decision AccessControl::decide_without_keys(const Caller& caller) {
  if (!caller.on_this_machine && !open_) {
    return refuse(Event::kRefusedNotOpen,
                  "this switch has no keys and admits only workers on its own machine; start it with --jobs keys.yaml, "
                  "or with --open to admit all workers");
  }
  return {Decision::Kind::kAdmit, "", "", nullptr};
}

Decision AccessControl::decide(const Caller& caller, const Claim& claim, Nonces::Clock::time_point now) {
  const std::shared_ptr<const JobKeys> keys = this->keys();
  if (keys->empty()) return decide_without_keys(caller);
  if (claim.job.empty()) {
    return refuse(Event::kRefusedNoKey,
                  "this switch requires a job key: set WEFT_SML_JOB and WEFT_SML_KEYS (SwitchML's own clients have no "
                  "keys and need a switch without --jobs)");
  }
  if (caller.nonce.empty()) return challenge("authenticate the request with the job's key and this nonce", now);
  if (!nonces_.take(caller.nonce, now)) {
    // Either a replayed request, or a worker whose nonce predates a restart of the switch. A new nonce helps only the
    // worker, because a replay lacks the key to authenticate it.
    counters_.add(Event::kRefusedReplay);
    return challenge("the nonce was used, has expired or is unknown; authenticate the request with this nonce", now);
  }
  // An unknown job gets the same answer as a wrong key, so that callers without a key cannot probe job names.
  const JobKey* key = keys->find(claim.job);
  if (key == nullptr || !verify_request_mac(caller.mac, key->secret, caller.nonce, claim)) {
    return refuse(Event::kRefusedWrongKey, "wrong key, or no such job");
  }
  return {Decision::Kind::kAdmit, "", "", std::shared_ptr<const JobKey>(keys, key)};
}

}  // namespace weft::control
