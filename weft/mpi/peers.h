// Which of a communicator's processes are still there: the launcher does not tell, the kernel does.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/mpi/communicator.h"

namespace weft::mpi {

class Peers {
 public:
  Peers() = default;
  // Collective: the ranks tell each other where they run.
  explicit Peers(CommunicatorView comm);

  // Throws PeerLost naming a rank whose process has ended. Only those on this machine can be seen; of the others MPI
  // and the timeout tell.
  void require_alive() const;

 private:
  struct Peer {
    std::uint64_t machine;  // of the process numbering: host, boot and pid namespace
    std::int64_t process;
  };
  [[nodiscard]] std::optional<int> find_lost() const;

  std::vector<Peer> peers_;
  int rank_ = 0;
};

}  // namespace weft::mpi
