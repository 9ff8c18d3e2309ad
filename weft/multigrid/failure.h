// Ends a failed solve: all ranks throw the same error.
#pragma once

#include "weft/multigrid/problem/problem_evaluator.h"
#include "weft/multigrid/transport.h"

namespace weft::multigrid {

// Collective; call it once all ranks know that one of them failed. Waits for pending sends, then throws SolveError for
// the fault of the lowest failed rank. On failed ranks it nests their original exception.
[[noreturn]] void throw_failure(Transport& transport, const ProblemEvaluator& evaluator);

}  // namespace weft::multigrid
