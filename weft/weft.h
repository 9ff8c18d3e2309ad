// All of weft's differentiable communication in one include.
#pragma once

#include "weft/collective/all_gather.h"
#include "weft/collective/all_reduce.h"
#include "weft/collective/all_to_all.h"
#include "weft/collective/autograd/backward.h"
#include "weft/collective/autograd/tape.h"
#include "weft/collective/barrier.h"
#include "weft/collective/broadcast.h"
#include "weft/collective/gather.h"
#include "weft/collective/neighbour_exchange.h"
#include "weft/collective/nonblocking.h"
#include "weft/collective/point_to_point.h"
#include "weft/collective/reduce.h"
#include "weft/collective/reduce_scatter.h"
#include "weft/collective/scan.h"
#include "weft/collective/scatter.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/options.h"

namespace weft {

using mpi::ReduceOp;

// Returns the communicator of all ranks of the job. The first call is collective and initializes MPI if necessary.
[[nodiscard]] inline CommunicatorPtr world() { return Communicator::world(); }

}  // namespace weft
