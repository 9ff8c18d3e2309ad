// Argument checks whose exceptions reach all ranks before data is sent.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "weft/collective/autograd/call.h"

namespace mpi4torch {

// Runs this rank's argument checks of a collective call. If they throw, all ranks throw: the others learn of the
// failure in the agreement at the start of the operation.
template <class Checks>
void check_on_all_ranks(const char* name, const weft::CommunicatorPtr& communicator, Checks&& checks) {
  try {
    std::forward<Checks>(checks)();
  } catch (const std::exception&) {
    const auto failure = std::current_exception();
    weft::collective::CollectiveCall call(name, communicator->id());
    call.check([&] { std::rethrow_exception(failure); });
    call.agree(weft::collective::Signature(name), 0, [] { return std::string(); });
    throw;
  }
}

}  // namespace mpi4torch
