// Work that every rank performs by itself and that succeeds only if it succeeds on all ranks.
#pragma once

#include <functional>

#include "weft/mpi/communicator.h"

namespace weft::experiment {

// Runs `work` on every rank and returns when all ranks have finished. If it throws on any rank, every rank throws: an
// ExperimentError if all failures are user errors, mpi::SharedFailure otherwise. `subject` names the work in errors.
// Collective; also synchronises with WEFT_CHECK=0, because later steps depend on it.
void run_on_all_ranks(const CommunicatorPtr& communicator, const char* subject, const std::function<void()>& work);

}  // namespace weft::experiment
