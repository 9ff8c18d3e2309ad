// Options of a solve. All ranks must pass the same values, except for storage, check_finite and recorder.
#pragma once

#include <cstdint>

#include "weft/multigrid/per_level.h"

namespace weft::multigrid {

class Recorder;

enum class CycleKind : std::int8_t {
  kV,
  kF,  // a V-cycle from each level on the way up, as in full multigrid (FMG)
};

// The norm that combines the residuals of the C-points.
enum class TemporalNorm : std::int8_t { kOne, kTwo, kInfinity };

enum class Storage : std::int8_t {
  kAllPoints,
  kCPoints,  // F-points are recomputed when needed, which is free in the cycles of this solver
};

enum class InitialGuess : std::int8_t {
  kZero,         // Problem::zero at every C-point except the first
  kConstant,     // the initial value at every C-point; sent once from rank to rank
  kCoarseSolve,  // a serial solve of the coarsest level, relaxed on the way up, before the first iteration
  kCallback,     // Problem::guess
  kPrevious,     // the result of the previous solve; kZero the first time
};

// The sweep over the finest level after the last iteration, with Step::final set.
enum class FinalSweep : std::int8_t {
  kFC,    // F- and C-relaxation: takes every step once
  kF,     // F-relaxation: C-points keep the values of the last correction
  kNone,  // only C-points have a solution
};

struct Options {
  int max_iterations = 10;
  // Iterations stop when the residual falls below absolute_tolerance, or below relative_tolerance times the first
  // residual. Zero disables a tolerance.
  double absolute_tolerance = 1e-12;
  double relative_tolerance = 0;
  TemporalNorm temporal_norm = TemporalNorm::kTwo;
  // If false, iterations compute and reduce no norms, and there are always max_iterations of them.
  bool compute_residual = true;
  // n means n times F- and C-relaxation, then a last F-relaxation: 0 is F-relaxation, 1 is FCF.
  PerLevel<int> relaxations{0};
  // Weight of the new value in C-relaxation; the old value has 1 - weight. The final sweep always uses the new value.
  PerLevel<double> c_weight{1.0};
  CycleKind cycle = CycleKind::kV;
  // The first iteration starts on the coarsest level with the injected guess.
  bool skip_downcycle = false;
  // Relax the coarsest level, as `relaxations` sets, instead of solving it.
  bool relax_coarsest_only = false;
  Storage storage = Storage::kAllPoints;
  InitialGuess initial_guess = InitialGuess::kZero;
  FinalSweep final_sweep = FinalSweep::kFC;
  // Measure the change of the C-points in the final sweep (Statistics::last_change). It costs two norms per C-point and
  // a reduction. Requires FinalSweep::kFC.
  bool measure_last_change = false;
  // Throw SolveError with level, step and rank if a state is not finite. WEFT_DEBUG=1 also enables it.
  bool check_finite = false;
  // Records the tasks of this rank; may differ between ranks. Not owned.
  Recorder* recorder = nullptr;
};

// Throws std::invalid_argument for invalid values.
void validate(const Options& options);
// A fingerprint of the options that must be equal on all ranks.
[[nodiscard]] std::uint64_t signature(const Options& options);

}  // namespace weft::multigrid
