// Request: owns the MPI requests of a communication and keeps its buffers alive until it is done.
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "weft/mpi/waiter.h"

namespace weft::mpi {

// Move-only. Destroying an unfinished Request neither blocks nor frees its buffers. A process-wide list of abandoned
// requests keeps them until MPI is done with them; waits of this process test the list. Buffers of requests that never
// complete are leaked.
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

  // A new handle for the next non-blocking MPI call to set.
  [[nodiscard]] MPI_Request* add();

  // Returns true once all requests are done; makes MPI progress.
  [[nodiscard]] bool test();
  // Blocks. Throws TimeoutError or PeerLost like Waiter, and then abandons the requests.
  void wait(const WaitContext& context);
  [[nodiscard]] bool done() const noexcept { return requests_.empty(); }

  // Status of the last receive, valid after test() or wait().
  [[nodiscard]] const MPI_Status& status() const noexcept { return status_; }

  // Frees the buffers of abandoned requests that are done. Every wait calls it; costs one load if there are none.
  static void free_abandoned();
  // The number of abandoned requests of this process that are not done yet, for tests and diagnostics.
  [[nodiscard]] static std::size_t abandoned_count();

 private:
  void abandon() noexcept;

  std::vector<MPI_Request> requests_;
  std::shared_ptr<void> keep_;
  MPI_Status status_{};
};

}  // namespace weft::mpi
