// The communicators of one group, and whether they can still be used.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weft/mpi/communicator.h"
#include "weft/mpi/direct_reduce.h"
#include "weft/mpi/peers.h"

namespace weft::process_group {

// Shared by a group and its Works, which may outlive it.
class Channels {
 public:
  // Collective over the ranks given (of MPI_COMM_WORLD), in whatever order the processes make
  // their groups: `name` keeps apart those made at the same time.
  Channels(const std::vector<int>& ranks, const std::string& name);

  [[nodiscard]] mpi::CommunicatorView collectives() const { return collectives_; }
  [[nodiscard]] mpi::CommunicatorView messages() const { return messages_; }
  [[nodiscard]] const mpi::Peers& peers() const { return peers_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int rank() const { return collectives_.rank(); }
  [[nodiscard]] int size() const { return collectives_.size(); }

  // Held while an operation is started: ranks must start them in the same order.
  [[nodiscard]] std::mutex& order() { return order_; }
  [[nodiscard]] mpi::TagSequence& tags() { return tags_; }

  // Throws if the group was shut down or an earlier operation failed: what other ranks still send for it could meet
  // the wrong receive.
  void require_usable() const;
  void give_up(const std::string& why, bool peer_lost = false) noexcept;
  // Frees the communicators where that is safe.
  void close() noexcept;

  // Whether a rank of any group of this process is gone: MPI_Finalize would wait for it.
  [[nodiscard]] static bool any_peer_lost() noexcept;

 private:
  std::string name_;
  mpi::Communicator collectives_;
  mpi::Communicator messages_;
  mpi::Peers peers_;
  mpi::TagSequence tags_;
  std::mutex order_;
  mutable std::mutex state_;
  std::string reason_;  // why it cannot be used; empty while it can
  bool given_up_ = false;
};

}  // namespace weft::process_group
