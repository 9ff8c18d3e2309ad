// What can go wrong in communication: an MPI call, a wait, a peer, or a call that the ranks do not agree on.
#pragma once

#include <mpi.h>

#include <stdexcept>
#include <string>

namespace weft::mpi {

// An MPI function returned an error; the text names class, cause, rank and communicator.
class MpiError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A wait lasted longer than Options::timeout.
class TimeoutError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A failure that every rank involved learns of: nobody needs to be told.
class SharedFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Another rank failed while this one was communicating with it.
class PeerLost : public SharedFailure {
 public:
  PeerLost(int rank, const std::string& cause);
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

// The ranks called different operations, or with arguments that do not fit; every rank gets the same text.
class Disagreement : public SharedFailure {
 public:
  using SharedFailure::SharedFailure;
};

[[noreturn]] void throw_mpi_error(int rc, const char* function, MPI_Comm comm);

// Throws MpiError unless rc is MPI_SUCCESS.
inline void check(int rc, const char* function, MPI_Comm comm = MPI_COMM_NULL) {
  if (rc != MPI_SUCCESS) [[unlikely]]
    throw_mpi_error(rc, function, comm);
}

}  // namespace weft::mpi
