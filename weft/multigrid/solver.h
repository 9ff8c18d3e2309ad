// Solver: multigrid reduction in time (MGRIT). Solves u[i+1] = step(u[i]) for all i at once, in parallel over the
// ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>

#include "weft/mpi/comm.h"
#include "weft/mpi/communicator.h"
#include "weft/multigrid/error.h"
#include "weft/multigrid/hierarchy.h"
#include "weft/multigrid/options.h"
#include "weft/multigrid/problem/problem.h"
#include "weft/multigrid/statistics.h"
#include "weft/multigrid/transport.h"

namespace weft::multigrid {

// Keeps the states between solves. One thread at a time may use it. With one level, a solve is a plain loop over the
// steps, in which each rank continues from the last value of the rank before.
class Solver {
 public:
  // The ranks of the transport own the points of the hierarchy in rank order. Throws std::invalid_argument if the
  // transport is null or the numbers of ranks differ.
  Solver(TimeHierarchy hierarchy, std::shared_ptr<Transport> transport);
  // Communicates over MPI. While a solve runs, no other messages may use the communicator.
  Solver(TimeHierarchy hierarchy, std::shared_ptr<Communicator> communicator);
  ~Solver();
  Solver(Solver&&) noexcept;
  Solver& operator=(Solver&&) noexcept;
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  // Collective. All ranks throw SolveError if a function of the problem throws on any rank, and mpi::Disagreement if
  // hierarchies or options differ or are invalid (std::invalid_argument on a single rank). Also throws
  // mpi::TimeoutError and mpi::PeerLost. After an exception the solver holds no solution, and the next solve works.
  Statistics solve(Problem& problem, const Options& options = {},
                   std::source_location where = std::source_location::current());

  [[nodiscard]] const TimeHierarchy& hierarchy() const noexcept;
  // The fine points of this rank.
  [[nodiscard]] partition::Range points() const;

  // The value at a fine point of this rank. Storage::kCPoints keeps only C-points and this rank's last point;
  // FinalSweep::kNone keeps only C-points. Throws std::out_of_range if the solver does not hold the point.
  [[nodiscard]] State solution(std::int64_t fine_index) const;
  // The value before this rank's first point that the final sweep used. Empty on the rank that owns point 0, on ranks
  // without points, and with FinalSweep::kF on ranks whose first point is a C-point.
  [[nodiscard]] State left_value() const;

  // Drops the solution. After a solve with InitialGuess::kPrevious, keeps its C-points as the guess of the next solve.
  void release() noexcept;
  // Drops all states.
  void clear() noexcept;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace weft::multigrid
