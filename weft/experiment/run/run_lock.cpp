#include "weft/experiment/run/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "weft/experiment/file/problems.h"
#include "weft/experiment/run/checkpoint.h"
#include "weft/files/error.h"

namespace weft::experiment {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout{5};
constexpr std::chrono::milliseconds kRetryInterval{20};

void require_unused(const fs::path& folder) {
  if (latest_checkpoint(folder).has_value() || fs::exists(folder / "metrics.jsonl")) {
    throw ExperimentError("weft: " + folder.string() +
                          " already contains a run; continue it with --resume, or choose another " +
                          "folder with --out");
  }
  for (const char* file : {"config.yaml", "run.json", "split.json", "trace.json"}) {
    if (!fs::exists(folder / file)) continue;
    throw ExperimentError("weft: the run would overwrite " + (folder / file).string() +
                          "; choose another folder with --out, or move the file");
  }
}

void create(const fs::path& folder) {
  try {
    fs::create_directories(folder);
  } catch (const fs::filesystem_error& error) {
    throw ExperimentError("weft: cannot create the run folder " + folder.string() + ": " + error.code().message() +
                          "; choose another one with --out");
  }
}

files::FileDescriptor lock(const fs::path& folder) {
  const fs::path file = folder / "lock";
  files::FileDescriptor descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (descriptor.get() < 0) files::throw_errno("open", file);
  const auto deadline = Clock::now() + kTimeout;
  while (::flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) break;  // the file system does not support locks
    if (Clock::now() > deadline) {
      throw ExperimentError("weft: another weft train is using " + folder.string() +
                            "; wait until it ends, or choose another folder with --out");
    }
    std::this_thread::sleep_for(kRetryInterval);
  }
  return descriptor;
}

}  // namespace

RunLock::RunLock(const fs::path& folder, bool resume) {
  if (fs::exists(folder) && !fs::is_directory(folder)) {
    throw ExperimentError("weft: " + folder.string() + " is a file, not a folder; choose another one with --out");
  }
  if (!resume) require_unused(folder);
  create(folder);
  lock_ = lock(folder);
  if (!resume) require_unused(folder);  // another job may have used the folder in the meantime
}

}  // namespace weft::experiment
