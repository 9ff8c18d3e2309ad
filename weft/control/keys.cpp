#include "weft/control/keys.h"

#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "weft/aggregation/config/job_name.h"
#include "weft/text/spelling.h"

namespace weft::control {
namespace {

constexpr std::size_t kLeastDigits = 32;    // 128 bits
constexpr std::int64_t kLeastSessions = 4;  // minimum quota of a job: DDP uses several groups
const std::vector<std::string> kJobFields{"key", "slots", "sessions", "workers"};

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  [[nodiscard]] std::map<std::string, JobKey> jobs(const YAML::Node& root) const {
    const std::string expected = "expected 'jobs:' with one job per line";
    if (!root.IsMap()) refuse(root, expected);
    refuse_repeats(root, "");
    std::map<std::string, JobKey> jobs;
    for (const auto& entry : root) {
      const std::string name = entry.first.Scalar();
      if (name != "jobs") refuse(entry.first, "unknown key '" + name + "'; allowed is jobs");
      if (!entry.second.IsMap()) refuse(entry.first, expected);
      refuse_repeats(entry.second, "job ");
      for (const auto& job : entry.second) jobs.emplace(name_of(job.first), fields_of(job.first, job.second));
    }
    if (jobs.empty()) refuse(root, expected);
    return jobs;
  }

 private:
  // Empty nodes have no position, so callers pass the key of an invalid value.
  [[noreturn]] void refuse(const YAML::Node& where, const std::string& what) const {
    throw KeysError("weft: " + file_ + ":" + std::to_string(std::max(where.Mark().line, 0) + 1) + ": " + what);
  }

  // yaml-cpp would silently keep only one of the duplicates.
  void refuse_repeats(const YAML::Node& map, const std::string& kind) const {
    std::set<std::string> seen;
    for (const auto& entry : map) {
      const std::string name = entry.first.Scalar();
      if (!seen.insert(name).second) refuse(entry.first, kind + "'" + name + "' is defined twice");
    }
  }

  [[nodiscard]] std::string name_of(const YAML::Node& node) const {
    const std::string name = node.Scalar();
    if (!aggregation::is_job_name(name)) {
      refuse(node, std::string("a job name has ") + aggregation::kJobNameRule + ", got '" + name + "'");
    }
    return name;
  }

  [[nodiscard]] JobKey fields_of(const YAML::Node& where, const YAML::Node& fields) const {
    const std::string whose = "job '" + where.Scalar() + "'";
    if (!fields.IsMap()) refuse(where, whose + " expects {key: ..., slots: ..., sessions: ..., workers: ...}");
    refuse_repeats(fields, whose + ": ");
    JobKey job;
    for (const auto& entry : fields) {
      const std::string field = entry.first.Scalar();
      if (field == "key") {
        job.secret = secret(entry.first, entry.second);
      } else if (field == "slots") {
        job.slots = number(entry.first, entry.second, 8192);
      } else if (field == "sessions") {
        job.sessions = number(entry.first, entry.second, 65536);
      } else if (field == "workers") {
        job.workers = number(entry.first, entry.second, 65535);
      } else {
        refuse(entry.first, whose + " has no field '" + field + "'; known fields: " + text::listed(kJobFields) +
                                text::suggestion(field, kJobFields));
      }
    }
    if (job.secret.empty()) refuse(where, whose + " has no key; generate one with `openssl rand -hex 32`");
    return job;
  }

  [[nodiscard]] std::string secret(const YAML::Node& key, const YAML::Node& value) const {
    const std::string digits = value.IsScalar() ? value.Scalar() : "";
    const bool hexadecimal = digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (!hexadecimal || digits.size() < kLeastDigits || digits.size() % 2 != 0) {
      refuse(key, "a key is an even number of at least " + std::to_string(kLeastDigits) +
                      " hexadecimal digits; generate one with `openssl rand -hex 32`");
    }
    std::string bytes;
    for (std::size_t i = 0; i < digits.size(); i += 2) {
      bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
    }
    return bytes;
  }

  [[nodiscard]] std::int64_t number(const YAML::Node& key, const YAML::Node& value, std::int64_t most) const {
    std::int64_t number = 0;
    if (!YAML::convert<std::int64_t>::decode(value, number) || number < 1 || number > most) {
      refuse(key, key.Scalar() + " must be a whole number from 1 to " + std::to_string(most));
    }
    return number;
  }

  std::string file_;
};

JobKey equal_share(const aggregation::SwitchLimits& limits, std::int64_t jobs) {
  JobKey share;
  share.slots = std::max<std::int64_t>(limits.slots / jobs, limits.slots_per_job);
  share.sessions = std::max<std::int64_t>(limits.jobs / jobs, kLeastSessions);
  return share;
}

void require_private(const std::string& file) {
  struct stat status{};
  if (stat(file.c_str(), &status) != 0) {
    throw KeysError("weft: cannot read the keys file '" + file + "': " + std::strerror(errno));
  }
  if (S_ISDIR(status.st_mode)) throw KeysError("weft: cannot read the keys file '" + file + "': it is a folder");
  if ((status.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    throw KeysError("weft: all users can read or write the keys file '" + file + "'; run chmod 600 on it");
  }
}

}  // namespace

JobKeys JobKeys::parse(const std::string& text, const std::string& file) {
  JobKeys keys;
  keys.file_ = file;
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw KeysError("weft: " + file + ":" + std::to_string(std::max(error.mark.line, 0) + 1) +
                    ": invalid YAML: " + error.msg);
  }
  keys.jobs_ = Reader(file).jobs(root);
  return keys;
}

JobKeys JobKeys::load(const std::string& file) {
  require_private(file);
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (stream.bad() || !stream.is_open()) {
    throw KeysError("weft: cannot read the keys file '" + file + "': " + std::strerror(errno));
  }
  return parse(text, file);
}

JobKeys JobKeys::with_shares(const aggregation::SwitchLimits& limits) const {
  JobKeys shared = *this;
  const JobKey share = equal_share(limits, static_cast<std::int64_t>(std::max<std::size_t>(jobs_.size(), 1)));
  for (auto& [name, key] : shared.jobs_) {
    if (key.slots == 0) key.slots = share.slots;
    if (key.sessions == 0) key.sessions = share.sessions;
  }
  return shared;
}

JobKey share_without_key(const aggregation::SwitchLimits& limits) { return equal_share(limits, 2); }

const JobKey* JobKeys::find(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

const JobKey& JobKeys::at(const std::string& job) const {
  if (const JobKey* key = find(job)) return *key;
  std::vector<std::string> names;
  for (const auto& [name, key] : jobs_) names.push_back(name);
  throw KeysError("weft: " + file_ + " has no key for job '" + job + "'; it has keys for " +
                  (names.empty() ? "no job" : text::listed(names)) + text::suggestion(job, names));
}

}  // namespace weft::control
