// SequenceMultigrid: multigrid in time over the steps of a recurrence, forward or adjoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "weft/mpi/communicator.h"
#include "weft/multigrid/hierarchy.h"
#include "weft/multigrid/options.h"
#include "weft/multigrid/solver.h"
#include "weft/multigrid/statistics.h"

namespace weft::time_parallel {

// The order of time of a solve. The adjoint runs from the last step of the sequence to the first.
enum class TimeOrder : std::int8_t { kForward, kAdjoint };

class SequenceMultigrid {
 public:
  // Independent steps of the recurrence or of its adjoint, to be taken together.
  struct Steps {
    std::vector<std::int64_t> first;  // the first step of the sequence that each of them stands for
    std::int64_t count = 1;           // the number of steps that each of them stands for; 1 on the finest level
    bool final = false;               // true once for each step of this rank, with the states of the result
  };
  // Maps states [number of steps, ...] to the states after the steps (adjoint: before them). The rank owns the last
  // (adjoint: the first) of the steps that each of them stands for.
  using StepFunction = std::function<at::Tensor(const at::Tensor& states, const Steps& steps)>;

  // communicator: ranks in the order of the solve's time; null for a single process. Nothing else may use it.
  // steps: numbers of steps of the ranks in the order of the sequence.
  // grid: levels, coarsening and min_coarse_steps; the other members are not used.
  SequenceMultigrid(std::shared_ptr<Communicator> communicator, const std::vector<std::int64_t>& steps,
                    multigrid::HierarchyOptions grid, TimeOrder order);

  // Collective. Starts from `initial`, which all ranks pass. Throws multigrid::SolveError if `step` throws on any rank.
  multigrid::Statistics solve(const at::Tensor& initial, StepFunction step, const multigrid::Options& options);

 private:
  std::int64_t total_;
  TimeOrder order_;
  multigrid::Solver solver_;
};

}  // namespace weft::time_parallel
