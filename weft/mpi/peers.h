// Detects processes of a communicator that have terminated, by asking the kernel: launchers do not report it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/mpi/comm.h"

namespace weft::mpi {

class Peers {
 public:
  Peers() = default;
  // Collective. Exchanges the machine and process id of each rank.
  explicit Peers(CommView comm);

  // Throws PeerLost with the rank of a process that has terminated. Sees only processes on this machine; MPI errors
  // and timeouts cover the others.
  void require_alive() const;

 private:
  struct Peer {
    std::uint64_t machine;  // hash of host, boot and pid namespace
    std::int64_t process;
  };
  [[nodiscard]] std::optional<int> find_lost() const;

  std::vector<Peer> peers_;
  int rank_ = 0;
};

}  // namespace weft::mpi
