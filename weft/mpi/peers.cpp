#include "weft/mpi/peers.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <string>

#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

std::uint64_t this_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat numbering{};
  static_cast<void>(stat("/proc/self/ns/pid", &numbering));
  return std::hash<std::string>()(boot + "/" + std::to_string(numbering.st_ino) + "/" + Environment::processor_name());
}

// A killed process stays a zombie until its parent, the launcher, reaps it.
bool is_zombie(std::int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const auto name_end = line.rfind(')');  // the name may contain any character
  return name_end != std::string::npos && name_end + 2 < line.size() && (line[name_end + 2] == 'Z');
}

bool has_ended(std::int64_t process) {
  if (kill(static_cast<pid_t>(process), 0) != 0) return errno == ESRCH;
  return is_zombie(process);
}

}  // namespace

Peers::Peers(CommView comm) : peers_(static_cast<std::size_t>(comm.size())), rank_(comm.rank()) {
  const Peer mine{this_machine(), getpid()};
  check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, peers_.data(), sizeof mine, MPI_BYTE, comm.handle()),
        "MPI_Allgather", comm.handle());
}

std::optional<int> Peers::find_lost() const {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank].machine == peers_[static_cast<std::size_t>(rank_)].machine && has_ended(peers_[rank].process)) {
      return static_cast<int>(rank);
    }
  }
  return std::nullopt;
}

void Peers::require_alive() const {
  if (const auto lost = find_lost()) {
    throw PeerLost(*lost,
                   "its process " + std::to_string(peers_[static_cast<std::size_t>(*lost)].process) + " has ended",
                   /*terminated=*/true);
  }
}

}  // namespace weft::mpi
