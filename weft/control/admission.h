// Who may set a session up: whoever proves a job's key; without keys, this machine or, if told so, anybody.
#pragma once

#include <string>

#include "weft/control/counters.h"
#include "weft/control/keys.h"
#include "weft/control/nonces.h"
#include "weft/control/proof.h"

namespace weft::control {

// What came with a request.
struct Caller {
  bool on_this_machine = false;
  std::string nonce;  // empty: none was presented yet
  std::string proof;
};

struct Decision {
  enum class Kind { kAdmit, kChallenge, kRefuse };
  Kind kind = Kind::kRefuse;
  std::string nonce;            // of a challenge: to prove the key over
  std::string reason;           // of a challenge or refusal
  const JobKey* key = nullptr;  // of an admission by key
};

class Admission {
 public:
  // `open`: without keys, also other machines.
  Admission(JobKeys keys, bool open, Counters& counters);

  [[nodiscard]] Decision decide(const Caller& caller, const Claim& claim, Nonces::Clock::time_point now);
  [[nodiscard]] bool by_key() const { return !keys_.empty(); }

 private:
  [[nodiscard]] Decision refuse(Event event, std::string reason);
  [[nodiscard]] Decision challenge(std::string reason, Nonces::Clock::time_point now);
  [[nodiscard]] Decision decide_without_keys(const Caller& caller);

  JobKeys keys_;
  bool open_;
  Counters& counters_;
  Nonces nonces_;
};

}  // namespace weft::control
