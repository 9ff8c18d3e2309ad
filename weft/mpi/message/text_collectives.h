// Text and other bytes of any length from one rank or all ranks to all.
//
// Collective over the communicator. Waits throw TimeoutError and PeerLost. `operation` is a string literal for errors.
#pragma once

#include <string>
#include <vector>

#include "weft/mpi/communicator.h"

namespace weft::mpi {

// The texts of all ranks, in rank order. Call it after an agreement: it does not check that all ranks call it.
[[nodiscard]] std::vector<std::string> all_gather_text(Communicator& communicator, const std::string& text,
                                                       const char* operation);

// The text of rank `root`; other ranks' texts are ignored. The ranks agree first: all of them throw Disagreement if
// they call it with different roots or operations.
[[nodiscard]] std::string broadcast_text(Communicator& communicator, const std::string& text, int root,
                                         const char* operation);

}  // namespace weft::mpi
