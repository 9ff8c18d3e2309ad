// The ranks that an operation is over. All that operations' headers need: operator.h, behind them, takes ten seconds.
#pragma once

#include <memory>

#include "weft/mpi/team.h"

namespace weft::collective {

using Comm = std::shared_ptr<mpi::Team>;

}  // namespace weft::collective
