// Decides which callers may set up sessions: holders of a job's key; without keys, callers on this machine or, if
// configured, any caller.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "weft/control/event_counters.h"
#include "weft/control/keys.h"
#include "weft/control/nonces.h"
#include "weft/control/request_mac.h"

namespace weft::control {

// Credentials of a request.
struct Caller {
  bool on_this_machine = false;
  std::string nonce;  // empty: not presented yet
  std::string mac;    // request_mac() over the nonce and the claim
};

struct Decision {
  enum class Kind { kAdmit, kChallenge, kRefuse };
  Kind kind = Kind::kRefuse;
  std::string nonce;                  // kChallenge: nonce for the next request's MAC
  std::string reason;                 // kChallenge and kRefuse
  std::shared_ptr<const JobKey> key;  // kAdmit by key
};

class AccessControl {
 public:
  // `open`: without keys, admit callers on other machines.
  AccessControl(JobKeys keys, bool open, EventCounters& counters);

  [[nodiscard]] Decision decide(const Caller& caller, const Claim& claim, Nonces::Clock::time_point now);
  // Replaces the keys for later requests. Thread-safe.
  void set_keys(JobKeys keys);

 private:
  [[nodiscard]] Decision refuse(Event event, std::string reason);
  [[nodiscard]] Decision challenge(std::string reason, Nonces::Clock::time_point now);
  [[nodiscard]] Decision decide_without_keys(const Caller& caller);

  [[nodiscard]] std::shared_ptr<const JobKeys> keys() const;

  mutable std::mutex mutex_;
  std::shared_ptr<const JobKeys> keys_;  // guarded by mutex_
  bool open_;
  EventCounters& counters_;
  Nonces nonces_;
};

}  // namespace weft::control
