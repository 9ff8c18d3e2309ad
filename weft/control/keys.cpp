#include "weft/control/keys.h"

#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "weft/aggregation/job_name.h"
#include "weft/text/spelling.h"

namespace weft::control {
namespace {

constexpr std::size_t kLeastDigits = 32;    // 128 bits
constexpr std::int64_t kLeastSessions = 4;  // a job's share, with however many others: DDP's groups are several
const std::vector<std::string> kJobFields{"key", "slots", "sessions", "workers"};

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  [[nodiscard]] std::map<std::string, JobKey> jobs(const YAML::Node& root) const {
    if (!root.IsMap()) refuse(root, "expected 'jobs:' with a job a line");
    for (const auto& entry : root) {
      if (entry.first.Scalar() != "jobs")
        refuse(entry.first, "'" + entry.first.Scalar() + "' is unknown; allowed is jobs");
    }
    const YAML::Node list = root["jobs"];
    if (!list || !list.IsMap() || list.size() == 0) refuse(root, "expected 'jobs:' with a job a line");
    std::map<std::string, JobKey> jobs;
    for (const auto& entry : list) {
      const std::string name = name_of(entry.first);
      if (!jobs.emplace(name, job(name, entry.second)).second) refuse(entry.first, "job '" + name + "' is given twice");
    }
    return jobs;
  }

 private:
  [[noreturn]] void refuse(const YAML::Node& where, const std::string& what) const {
    throw KeysError("weft: " + file_ + ":" + std::to_string(where.Mark().line + 1) + ": " + what);
  }

  [[nodiscard]] std::string name_of(const YAML::Node& node) const {
    const std::string name = node.Scalar();
    if (!aggregation::is_job_name(name)) {
      refuse(node, std::string("a job's name has ") + aggregation::kJobNameRule + ", got '" + name + "'");
    }
    return name;
  }

  [[nodiscard]] JobKey job(const std::string& name, const YAML::Node& node) const {
    if (!node.IsMap()) refuse(node, "job '" + name + "' expects {key: ..., slots: ..., sessions: ..., workers: ...}");
    JobKey job;
    for (const auto& entry : node) {
      const std::string field = entry.first.Scalar();
      if (field == "key") {
        job.secret = secret(entry.second);
      } else if (field == "slots") {
        job.slots = number(field, entry.second, 8192);
      } else if (field == "sessions") {
        job.sessions = number(field, entry.second, 65536);
      } else if (field == "workers") {
        job.workers = number(field, entry.second, 65535);
      } else {
        refuse(entry.first, "job '" + name + "' has no field '" + field +
                                "'; allowed are key, slots, sessions, workers" + text::suggestion(field, kJobFields));
      }
    }
    if (job.secret.empty()) refuse(node, "job '" + name + "' lacks its key; make one with `openssl rand -hex 32`");
    return job;
  }

  [[nodiscard]] std::string secret(const YAML::Node& node) const {
    const std::string digits = node.IsScalar() ? node.Scalar() : "";
    const bool hexadecimal = digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (!hexadecimal || digits.size() < kLeastDigits || digits.size() % 2 != 0) {
      refuse(node, "a key is an even number of at least " + std::to_string(kLeastDigits) +
                       " hexadecimal digits; make one with `openssl rand -hex 32`");
    }
    std::string bytes;
    for (std::size_t i = 0; i < digits.size(); i += 2) {
      bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
    }
    return bytes;
  }

  [[nodiscard]] std::int64_t number(const std::string& field, const YAML::Node& node, std::int64_t most) const {
    std::int64_t value = 0;
    if (!YAML::convert<std::int64_t>::decode(node, value) || value < 1 || value > most) {
      refuse(node, field + " must be a whole number from 1 to " + std::to_string(most));
    }
    return value;
  }

  std::string file_;
};

void require_private(const std::string& file) {
  struct stat status{};
  if (stat(file.c_str(), &status) != 0) {
    throw KeysError("weft: the keys file '" + file + "' cannot be read: " + std::strerror(errno));
  }
  if (S_ISDIR(status.st_mode)) throw KeysError("weft: the keys file '" + file + "' cannot be read: it is a folder");
  if ((status.st_mode & S_IROTH) != 0) {
    throw KeysError("weft: everybody on this machine can read the keys in '" + file + "'; chmod 600 it");
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
    throw KeysError("weft: " + file + ":" + std::to_string(error.mark.line + 1) + ": not YAML: " + error.msg);
  }
  keys.jobs_ = Reader(file).jobs(root);
  return keys;
}

JobKeys JobKeys::load(const std::string& file) {
  require_private(file);
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (stream.bad() || !stream.is_open()) {
    throw KeysError("weft: the keys file '" + file + "' cannot be read: " + std::strerror(errno));
  }
  return parse(text, file);
}

JobKeys JobKeys::with_shares(const aggregation::SwitchLimits& limits) const {
  JobKeys shared = *this;
  const auto jobs = static_cast<std::int64_t>(std::max<std::size_t>(jobs_.size(), 1));
  for (auto& [name, key] : shared.jobs_) {
    if (key.slots == 0) key.slots = std::max<std::int64_t>(limits.slots / jobs, limits.slots_per_job);
    if (key.sessions == 0) key.sessions = std::max<std::int64_t>(limits.jobs / jobs, kLeastSessions);
  }
  return shared;
}

const JobKey* JobKeys::find(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

const JobKey& JobKeys::at(const std::string& job) const {
  if (const JobKey* key = find(job)) return *key;
  std::string known;
  std::vector<std::string> names;
  for (const auto& [name, key] : jobs_) {
    known += (known.empty() ? "" : ", ") + name;
    names.push_back(name);
  }
  throw KeysError("weft: " + file_ + " has no key for job '" + job + "'; there are keys for " +
                  (known.empty() ? "no job" : known) + text::suggestion(job, names));
}

}  // namespace weft::control
