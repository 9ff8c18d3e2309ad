#include "weft/control/admission.h"

#include <utility>

namespace weft::control {

Admission::Admission(JobKeys keys, bool open, Counters& counters)
    : keys_(std::move(keys)), open_(open), counters_(counters) {}

Decision Admission::refuse(Event event, std::string reason) {
  counters_.add(event);
  return {Decision::Kind::kRefuse, "", std::move(reason), nullptr};
}

Decision Admission::challenge(std::string reason, Nonces::Clock::time_point now) {
  counters_.add(Event::kChallenged);
  return {Decision::Kind::kChallenge, nonces_.issue(now), std::move(reason), nullptr};
}

Decision Admission::decide_without_keys(const Caller& caller) {
  if (!caller.on_this_machine && !open_) {
    return refuse(Event::kRefusedNotOpen,
                  "this switch has no keys and admits workers of its own machine only; start it with --jobs keys.yaml, "
                  "or with --open to admit everybody");
  }
  return {Decision::Kind::kAdmit, "", "", nullptr};
}

Decision Admission::decide(const Caller& caller, const Claim& claim, Nonces::Clock::time_point now) {
  if (!by_key()) return decide_without_keys(caller);
  if (claim.job.empty()) {
    return refuse(Event::kRefusedNoKey,
                  "this switch admits by job key: set WEFT_SML_JOB and WEFT_SML_KEYS (SwitchML's own clients have no "
                  "keys and need a switch without --jobs)");
  }
  if (caller.nonce.empty()) return challenge("prove the job's key over this nonce", now);
  if (!nonces_.take(caller.nonce, now)) {
    // A replay, or an honest worker whose nonce was handed out before a restart: only the latter can use another one.
    counters_.add(Event::kRefusedReplay);
    return challenge("that nonce was used already, is too old or not this switch's; prove the job's key over this one",
                     now);
  }
  // An unknown job is answered like a wrong key: names are nobody's business who has no key.
  const JobKey* key = keys_.find(claim.job);
  if (key == nullptr || !proves(caller.proof, key->secret, caller.nonce, claim)) {
    return refuse(Event::kRefusedWrongKey, "wrong key, or no such job");
  }
  return {Decision::Kind::kAdmit, "", "", key};
}

}  // namespace weft::control
