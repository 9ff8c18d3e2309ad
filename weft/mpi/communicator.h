// Communicators: CommunicatorView borrows a handle, Communicator owns one and frees it.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

namespace weft::mpi {

class Communicator;

// Non-owning; cheap to copy. Rank and size are cached because operations ask for them all the time.
class CommunicatorView {
 public:
  CommunicatorView() = default;
  explicit CommunicatorView(MPI_Comm comm);

  [[nodiscard]] static CommunicatorView world();

  [[nodiscard]] MPI_Comm handle() const noexcept { return comm_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] bool valid() const noexcept { return comm_ != MPI_COMM_NULL; }
  [[nodiscard]] std::string name() const;

  // All of the following are collective over this communicator and return an owner with MPI_ERRORS_RETURN.
  [[nodiscard]] Communicator dup(const std::string& name = "") const;
  // Ranks of equal color form a communicator, ordered by key. A negative color gives an invalid one.
  [[nodiscard]] Communicator split(int color, int key) const;
  // The ranks that share memory with this one: a node.
  [[nodiscard]] Communicator split_shared() const;
  // A grid over the first product(extents) ranks; the others get an invalid communicator.
  [[nodiscard]] Communicator cart(const std::vector<int>& extents, const std::vector<bool>& periodic,
                                  bool reorder = false) const;
  void barrier() const;

  // Grid questions; throw MpiError where this is no grid.
  struct Grid {
    std::vector<int> extents;
    std::vector<bool> periodic;
    std::vector<int> coordinates;
  };
  struct Neighbours {
    int before;  // MPI_PROC_NULL beyond a non-periodic edge
    int after;
  };
  [[nodiscard]] bool is_cart() const;
  [[nodiscard]] Grid grid() const;
  [[nodiscard]] Neighbours neighbours(int dimension) const;

  // Largest tag that this MPI allows.
  [[nodiscard]] int tag_upper_bound() const;

 protected:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = -1;
  int size_ = 0;
};

// Move-only owner. The destructor frees the handle if MPI still runs; it never throws.
class Communicator : public CommunicatorView {
 public:
  Communicator() = default;
  ~Communicator() { release(); }
  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Takes ownership of a handle made by MPI.
  [[nodiscard]] static Communicator adopt(MPI_Comm comm, const std::string& name = "");
  // A duplicate of the communicator behind a Fortran handle, as mpi4py's py2f() gives it. Collective.
  [[nodiscard]] static Communicator from_fortran(int handle);

  // Gives the handle away without freeing it.
  MPI_Comm leak() noexcept;

 private:
  void release() noexcept;
};

}  // namespace weft::mpi
