// Everything of weft's differentiable communication in one include.
#pragma once

#include "weft/collective/all_gather.h"
#include "weft/collective/all_reduce.h"
#include "weft/collective/all_to_all.h"
#include "weft/collective/backward.h"
#include "weft/collective/broadcast.h"
#include "weft/collective/gather.h"
#include "weft/collective/neighbour_exchange.h"
#include "weft/collective/nonblocking.h"
#include "weft/collective/point_to_point.h"
#include "weft/collective/reduce.h"
#include "weft/collective/reduce_scatter.h"
#include "weft/collective/scan.h"
#include "weft/collective/scatter.h"
#include "weft/collective/tape.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/options.h"
#include "weft/mpi/team.h"

namespace weft {

using collective::Comm;
using mpi::ReduceOp;

// All ranks of the job; initialises MPI if nobody has. Collective at the first call.
[[nodiscard]] inline Comm world() { return mpi::Team::world(); }

}  // namespace weft
