// The MPI communicators of one process group, and whether they are usable.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weft/mpi/comm.h"
#include "weft/mpi/direct_reduce.h"
#include "weft/mpi/peers.h"
#include "weft/node/group.h"

namespace weft::process_group {

// Shared by a group and its Works, which may outlive the group.
class GroupCommunicators {
 public:
  // Collective over the given ranks of MPI_COMM_WORLD. Processes may create groups in different orders: `name`
  // distinguishes groups that are created at the same time.
  GroupCommunicators(const std::vector<int>& ranks, const std::string& name);

  ~GroupCommunicators() { close(); }
  GroupCommunicators(const GroupCommunicators&) = delete;
  GroupCommunicators& operator=(const GroupCommunicators&) = delete;

  [[nodiscard]] mpi::CommView collectives() const { return collectives_; }
  [[nodiscard]] mpi::CommView messages() const { return messages_; }
  // The shared memory of the ranks of collectives(); null if they run on several nodes or cannot share memory.
  [[nodiscard]] const std::shared_ptr<node::Group>& node() const { return node_; }
  [[nodiscard]] const mpi::Peers& peers() const { return peers_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int rank() const { return collectives_.rank(); }
  [[nodiscard]] int size() const { return collectives_.size(); }

  // Hold it while starting an operation: all ranks must start operations in the same order.
  [[nodiscard]] std::mutex& order() { return order_; }
  [[nodiscard]] mpi::TagSequence& tags() { return tags_; }

  // Throws DistBackendError if the group was shut down or an operation failed: its late messages could match a wrong
  // receive.
  void require_usable() const;
  // Makes the group unusable. why: the reason for later errors. peer_lost: a rank terminated.
  void invalidate(const std::string& why, bool peer_lost = false) noexcept;
  // Frees the communicators if that is safe.
  void close() noexcept;

  // True if a rank of any group of this process terminated: MPI_Finalize would wait for it.
  [[nodiscard]] static bool any_peer_lost() noexcept;

 private:
  std::string name_;
  mpi::UniqueComm collectives_;
  mpi::UniqueComm messages_;
  mpi::Peers peers_;
  std::shared_ptr<node::Group> node_;
  mpi::TagSequence tags_;
  std::mutex order_;
  mutable std::mutex state_;
  std::string reason_;  // why the group is unusable; empty while it is usable
  bool failed_ = false;
};

}  // namespace weft::process_group
