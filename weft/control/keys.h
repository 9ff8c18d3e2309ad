// The keys file: the jobs that a switch admits, with their secrets and quotas.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>

#include "weft/aggregation/switch/jobs.h"

namespace weft::control {

// Invalid keys file. The message names file, line and the allowed values, but never a key.
class KeysError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct JobKey {
  std::string secret;         // raw bytes
  std::int64_t slots = 0;     // maximum number of slots; 0: chosen by the switch
  std::int64_t sessions = 0;  // maximum number of sessions (process groups); 0: chosen by the switch
  std::int64_t workers = 0;   // exact number of workers; 0: any
};

// Keys by job name. Without keys, the switch does not authenticate callers.
class JobKeys {
 public:
  // YAML:
  //   jobs:
  //     resnet: {key: <at least 32 hexadecimal digits>, slots: 512, sessions: 4, workers: 8}
  [[nodiscard]] static JobKeys parse(const std::string& text, const std::string& file);
  // Reads a file. Throws KeysError, also if users other than owner and group may read or write it.
  [[nodiscard]] static JobKeys load(const std::string& file);

  // Returns a copy in which every job has a quota, so that no job can take all sessions or slots.
  [[nodiscard]] JobKeys with_shares(const aggregation::SwitchLimits& limits) const;

  [[nodiscard]] const JobKey* find(const std::string& job) const;
  // For workers: throws KeysError with the known jobs if there is no such job.
  [[nodiscard]] const JobKey& at(const std::string& job) const;
  [[nodiscard]] bool empty() const { return jobs_.empty(); }
  [[nodiscard]] std::size_t size() const { return jobs_.size(); }

 private:
  std::string file_;
  std::map<std::string, JobKey> jobs_;
};

// Quota of workers without a key that share a host or a job name: half of the switch, but at least the minimum of a job
// with a key.
[[nodiscard]] JobKey share_without_key(const aggregation::SwitchLimits& limits);

}  // namespace weft::control
