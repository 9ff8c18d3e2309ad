// A communication under way: owns its MPI requests and keeps its buffers alive until it is done.
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "weft/mpi/waiter.h"

namespace weft::mpi {

// Move-only. Destroying an unfinished Request neither blocks nor frees its buffers: they move to a graveyard
// that holds them until MPI is done with them.
class Request {
 public:
  Request() = default;
  // `keep` owns the memory that MPI reads or writes.
  explicit Request(std::shared_ptr<void> keep) : keep_(std::move(keep)) {}
  ~Request() { abandon(); }
  Request(Request&& other) noexcept = default;
  Request& operator=(Request&& other) noexcept;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // A slot for the next MPI_I… call to fill in.
  [[nodiscard]] MPI_Request* add();

  // True once everything is done; makes MPI progress.
  [[nodiscard]] bool test();
  // Blocks; throws TimeoutError or PeerLost as the waiter says, and then the Request is abandoned.
  void wait(const WaitContext& context);
  [[nodiscard]] bool done() const noexcept { return requests_.empty(); }

  // Status of the (last) receive, valid after test() or wait().
  [[nodiscard]] const MPI_Status& status() const noexcept { return status_; }

  // Requests abandoned so far in this process that MPI has not finished (for tests and diagnostics).
  [[nodiscard]] static std::size_t graveyard_size();

 private:
  void abandon() noexcept;

  std::vector<MPI_Request> requests_;
  std::shared_ptr<void> keep_;
  MPI_Status status_{};
};

}  // namespace weft::mpi
