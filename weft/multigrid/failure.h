// The end of a solve that failed somewhere: every rank throws the same error.
#pragma once

#include "weft/multigrid/evaluate.h"
#include "weft/multigrid/transport.h"

namespace weft::multigrid {

// Collective, once all ranks know that one has failed. Finishes what was sent, then throws SolveError for the fault of
// the lowest rank that has one; on ranks with a fault of their own the exception behind it is nested inside.
[[noreturn]] void throw_failure(Transport& transport, const Evaluator& evaluator);

}  // namespace weft::multigrid
