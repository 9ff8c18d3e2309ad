// The members of a group meet before they create its communicators, which would block inside MPI.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace weft::process_group {

// Collective over `ranks` of MPI_COMM_WORLD. Returns when all of them have called it. If one gives up first, because of
// its timeout or another failure, all ranks throw DistBackendError with the same text, also those that call it later.
void await_members(c10d::Store& store, const std::vector<int>& ranks, const std::string& name,
                   std::chrono::milliseconds timeout);

}  // namespace weft::process_group
