// Multigrid reduction in time: solves u[i+1] = step(u[i]) for all i at once, on the ranks of a transport.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>

#include "weft/mpi/communicator.h"
#include "weft/mpi/team.h"
#include "weft/multigrid/error.h"
#include "weft/multigrid/hierarchy.h"
#include "weft/multigrid/options.h"
#include "weft/multigrid/problem.h"
#include "weft/multigrid/statistics.h"
#include "weft/multigrid/transport.h"

namespace weft::multigrid {

// Holds the states between solves; one thread at a time. With one level a solve is a plain loop over the steps, each
// rank taking up where the one before it ends.
class Solver {
 public:
  // The transport's ranks own the hierarchy's points in rank order. Throws std::invalid_argument where they are not as
  // many.
  Solver(TimeHierarchy hierarchy, std::shared_ptr<Transport> transport);
  // Over MPI; the team should have no other traffic while a solve runs.
  Solver(TimeHierarchy hierarchy, std::shared_ptr<mpi::Team> team);
  ~Solver();
  Solver(Solver&&) noexcept;
  Solver& operator=(Solver&&) noexcept;
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  // Collective. Throws SolveError on all ranks where a function of the problem threw on any; mpi::Disagreement where
  // the ranks' hierarchies or options differ or make no sense (std::invalid_argument on a single rank);
  // mpi::TimeoutError and mpi::PeerLost as every communication does. After each of these the next solve works, and no
  // solution is held.
  Statistics solve(Problem& problem, const Options& options = {},
                   std::source_location where = std::source_location::current());

  [[nodiscard]] const TimeHierarchy& hierarchy() const noexcept;
  // The fine points of this rank.
  [[nodiscard]] partition::Range points() const;

  // The value at a fine point of this rank. With Storage::kCPoints only C-points and this rank's last point are there,
  // with FinalSweep::kNone only C-points. Throws std::out_of_range for a point that is not this rank's or not held.
  [[nodiscard]] State solution(std::int64_t fine_index) const;
  // The value before this rank's first point, as the final sweep used it. Empty where it used none: on the rank that
  // owns point 0, on ranks without points, and with FinalSweep::kF on ranks that begin with a C-point.
  [[nodiscard]] State left_value() const;

  // Lets go of the solution; after a solve with InitialGuess::kPrevious its C-points stay, for the next one to start
  // from.
  void release() noexcept;
  // Lets go of every state.
  void forget() noexcept;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace weft::multigrid
