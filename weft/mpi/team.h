// Deprecated names from version 0.1: include weft/mpi/communicator.h and use weft::Communicator.
#pragma once

#include "weft/mpi/communicator.h"

namespace weft::mpi {
using Team [[deprecated("use weft::Communicator")]] = Communicator;
}  // namespace weft::mpi

namespace weft {
using Comm [[deprecated("use weft::CommunicatorPtr")]] = CommunicatorPtr;
}  // namespace weft
