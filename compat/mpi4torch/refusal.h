// A mistake of one rank, told to all ranks before anything is sent.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "weft/collective/operator.h"

namespace mpi4torch {

// Runs this rank's checks of a collective call. What they throw, all ranks throw: those whose checks hold learn of it
// in the agreement that opens the operation itself.
template <class Checks>
void check_on_all_ranks(const char* name, const weft::collective::Comm& team, Checks&& checks) {
  try {
    std::forward<Checks>(checks)();
  } catch (const std::exception&) {
    const auto mistake = std::current_exception();
    weft::collective::Negotiation talk(name, team->id());
    talk.check([&] { std::rethrow_exception(mistake); });
    talk.agree(weft::collective::Signature(name), 0, [] { return std::string(); });
    throw;
  }
}

}  // namespace mpi4torch
