// RAII for MPI_Comm handles: CommView borrows one, UniqueComm owns one and frees it.
//
// These wrap plain MPI. weft::Communicator (weft/mpi/communicator.h) adds agreements, alarms and separate channels.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

namespace weft::mpi {

class UniqueComm;

// A non-owning handle that is cheap to copy. Caches rank and size because every operation reads them.
class CommView {
 public:
  CommView() = default;
  explicit CommView(MPI_Comm comm);

  [[nodiscard]] static CommView world();

  [[nodiscard]] MPI_Comm handle() const noexcept { return comm_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] bool valid() const noexcept { return comm_ != MPI_COMM_NULL; }
  [[nodiscard]] std::string name() const;

  // The functions down to barrier() are collective over this communicator. Results use MPI_ERRORS_RETURN.
  [[nodiscard]] UniqueComm dup(const std::string& name = "") const;
  // Ranks with the same color form a communicator, ordered by key. A negative color returns an invalid one.
  [[nodiscard]] UniqueComm split(int color, int key) const;
  // The ranks that share memory with this rank, usually those of one node.
  [[nodiscard]] UniqueComm split_shared() const;
  // A Cartesian grid of the first product(extents) ranks; the other ranks get an invalid communicator.
  // Throws std::invalid_argument if the grid does not fit.
  [[nodiscard]] UniqueComm cart(const std::vector<int>& extents, const std::vector<bool>& periodic,
                                bool reorder = false) const;
  void barrier() const;

  // Cartesian topology. The two queries throw MpiError unless is_cart().
  struct CartTopology {
    std::vector<int> extents;
    std::vector<bool> periodic;
    std::vector<int> coordinates;
  };
  struct Neighbours {
    int before;  // MPI_PROC_NULL beyond a non-periodic edge
    int after;
  };
  [[nodiscard]] bool is_cart() const;
  [[nodiscard]] CartTopology cart_topology() const;
  [[nodiscard]] Neighbours neighbours(int dimension) const;

  // The largest tag that this MPI library allows.
  [[nodiscard]] int tag_upper_bound() const;

 protected:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = -1;
  int size_ = 0;
};

// A move-only owner. The destructor frees the handle if MPI is still initialised; it never throws.
class UniqueComm : public CommView {
 public:
  UniqueComm() = default;
  ~UniqueComm() { release(); }
  UniqueComm(UniqueComm&& other) noexcept;
  UniqueComm& operator=(UniqueComm&& other) noexcept;
  UniqueComm(const UniqueComm&) = delete;
  UniqueComm& operator=(const UniqueComm&) = delete;

  // Takes ownership of a handle and sets MPI_ERRORS_RETURN on it.
  [[nodiscard]] static UniqueComm adopt(MPI_Comm comm, const std::string& name = "");
  // Collective. Duplicates the communicator of a Fortran handle, which mpi4py's py2f() returns.
  // Throws std::invalid_argument for MPI_COMM_NULL.
  [[nodiscard]] static UniqueComm from_fortran(int handle);

  // Releases the handle without freeing it.
  MPI_Comm leak() noexcept;

 private:
  void release() noexcept;
};

}  // namespace weft::mpi
