// The file of job keys: which jobs a switch admits, each with its secret and its share of the slots.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>

#include "weft/aggregation/jobs.h"

namespace weft::control {

// A file that cannot be used; the text names file, line and what is allowed, never a key.
class KeysError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct JobKey {
  std::string secret;         // bytes
  std::int64_t slots = 0;     // at most so many of the switch's slots; 0: the switch decides
  std::int64_t sessions = 0;  // the same; each process group is one
  std::int64_t workers = 0;   // exactly so many workers; 0: any number
};

// By job name. An empty book admits nobody by key.
class JobKeys {
 public:
  // YAML:
  //   jobs:
  //     resnet: {key: <at least 32 hexadecimal digits>, slots: 512, sessions: 4, workers: 8}
  [[nodiscard]] static JobKeys parse(const std::string& text, const std::string& file);
  // Throws also if others than owner and group may read the file.
  [[nodiscard]] static JobKeys load(const std::string& file);

  // The same, with a share for each job whose entry names none: no job can take all sessions or slots from the others.
  [[nodiscard]] JobKeys with_shares(const aggregation::SwitchLimits& limits) const;

  [[nodiscard]] const JobKey* find(const std::string& job) const;
  // The same, for workers: throws naming the jobs that there are.
  [[nodiscard]] const JobKey& at(const std::string& job) const;
  [[nodiscard]] bool empty() const { return jobs_.empty(); }
  [[nodiscard]] std::size_t size() const { return jobs_.size(); }

 private:
  std::string file_;
  std::map<std::string, JobKey> jobs_;
};

}  // namespace weft::control
