#include "weft/experiment/folder_claim.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "weft/experiment/checkpoint.h"
#include "weft/experiment/problems.h"
#include "weft/files/error.h"

namespace weft::experiment {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kForTheDying{5};
constexpr std::chrono::milliseconds kBetweenTries{20};

void require_unused(const fs::path& folder) {
  const std::string got = "expected a new folder for the run, got " + folder.string();
  if (latest_checkpoint(folder).has_value() || fs::exists(folder / "metrics.jsonl")) {
    throw ExperimentError(got + ", which has one; go on with it by --resume, or name another by --out");
  }
  for (const char* file : {"config.yaml", "run.json", "split.json", "trace.json"}) {
    if (!fs::exists(folder / file)) continue;
    throw ExperimentError(got + ", whose " + file + " it would replace; name another by --out, or move that file");
  }
}

void make(const fs::path& folder) {
  try {
    fs::create_directories(folder);
  } catch (const fs::filesystem_error& error) {
    throw ExperimentError("expected a folder for the run, got " + folder.string() +
                          ", which cannot be one: " + error.code().message());
  }
}

files::FileDescriptor locked(const fs::path& folder) {
  const fs::path file = folder / "lock";
  files::FileDescriptor lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock.get() < 0) files::throw_errno("open", file);
  const auto until = Clock::now() + kForTheDying;
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) break;  // a file system without locks
    if (Clock::now() > until) {
      throw ExperimentError("expected a folder of this run alone, got " + folder.string() +
                            ": another weft train works in this folder; wait for its end, or name another by --out");
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  return lock;
}

}  // namespace

FolderClaim::FolderClaim(const fs::path& folder, bool resume) {
  if (fs::exists(folder) && !fs::is_directory(folder)) {
    throw ExperimentError("expected a folder for the run, got " + folder.string() + ", which is a file");
  }
  if (!resume) require_unused(folder);
  make(folder);
  lock_ = locked(folder);
  if (!resume) require_unused(folder);  // another job may have worked there meanwhile
}

}  // namespace weft::experiment
