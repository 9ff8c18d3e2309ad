// How a solve is done; all ranks must say the same.
#pragma once

#include <cstdint>

#include "weft/multigrid/per_level.h"

namespace weft::multigrid {

class Recorder;

enum class CycleKind : std::int8_t {
  kV,
  kF,  // a V-cycle on each level on the way up: FMG
};

// How the residuals at the C-points become one number.
enum class TemporalNorm : std::int8_t { kOne, kTwo, kInfinity };

enum class Storage : std::int8_t {
  kAllPoints,
  kCPoints,  // F-points are computed again where they are needed, which costs nothing more in this solver's cycles
};

enum class InitialGuess : std::int8_t {
  kZero,         // Problem::zero at every C-point but the first
  kConstant,     // the initial value at every C-point; travels from rank to rank once
  kCoarseSolve,  // the coarsest level, solved serially, and relaxed on the way up; before the first iteration
  kCallback,     // Problem::guess
  kPrevious,     // what the last solve left; Problem::guess's place is taken by kZero the first time
};

// What follows the last iteration on the finest level, with Step::final set.
enum class FinalSweep : std::int8_t {
  kFC,    // F- and C-relaxation: every step once
  kF,     // F-relaxation: C-points stay as the last correction left them
  kNone,  // only C-points have a solution
};

struct Options {
  int max_iterations = 10;
  // Iterations end below either; zero means never. Relative to the first residual.
  double absolute_tolerance = 1e-12;
  double relative_tolerance = 0;
  TemporalNorm temporal_norm = TemporalNorm::kTwo;
  // Off: no norms, no reduction in each iteration, and always max_iterations.
  bool compute_residual = true;
  // n means n times F- and C-relaxation, then F once more: 0 is F-relaxation, 1 is FCF.
  PerLevel<int> relaxations{0};
  // Of the new value in C-relaxation; the old one has 1 - weight. The final sweep always takes the new value.
  PerLevel<double> c_weight{1.0};
  CycleKind cycle = CycleKind::kV;
  // The first iteration starts on the coarsest level, from the guess injected.
  bool skip_downcycle = false;
  // The coarsest level is relaxed (as often as its setting says) instead of solved.
  bool relax_coarsest_only = false;
  Storage storage = Storage::kAllPoints;
  InitialGuess initial_guess = InitialGuess::kZero;
  FinalSweep final_sweep = FinalSweep::kFC;
  // Throw for a state that is not finite, naming level, step and rank. WEFT_DEBUG=1 sets it where this is false.
  bool check_finite = false;
  // Told of everything this rank does; may differ between ranks. Not owned.
  Recorder* recorder = nullptr;
};

// Throws std::invalid_argument for values that make no sense.
void validate(const Options& options);
// Equal for equal options: what ranks compare. The recorder does not count.
[[nodiscard]] std::uint64_t signature(const Options& options);

}  // namespace weft::multigrid
