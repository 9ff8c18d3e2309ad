// Exceptions of the communication layer: failed MPI calls, timeouts, lost peers and calls that do not match.
#pragma once

#include <mpi.h>

#include <stdexcept>
#include <string>

namespace weft::mpi {

// An MPI function returned an error. The text names its class and cause, the rank and the communicator.
class MpiError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A wait took longer than Options::timeout.
class TimeoutError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A failure that all ranks involved know already, so no alarm is necessary.
class SharedFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Another rank failed while this rank communicated with it.
class PeerLost : public SharedFailure {
 public:
  // `terminated`: the process of that rank ends or has ended. Otherwise it may continue after its failure.
  PeerLost(int rank, const std::string& cause, bool terminated);
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] bool terminated() const noexcept { return terminated_; }

 private:
  int rank_;
  bool terminated_;
};

// The ranks called different operations or passed arguments that do not match. All ranks get the same text.
class Disagreement : public SharedFailure {
 public:
  using SharedFailure::SharedFailure;
};

// Tag of the exceptions that an InterruptHook throws out of a wait (weft/mpi/waiter.h). Not a std::exception: the
// exception of a language binding is one already.
class Interrupted {
 protected:
  ~Interrupted() = default;
};

[[noreturn]] void throw_mpi_error(int rc, const char* function, MPI_Comm comm);

// Throws MpiError unless rc is MPI_SUCCESS.
inline void check(int rc, const char* function, MPI_Comm comm = MPI_COMM_NULL) {
  if (rc != MPI_SUCCESS) [[unlikely]]
    throw_mpi_error(rc, function, comm);
}

}  // namespace weft::mpi
